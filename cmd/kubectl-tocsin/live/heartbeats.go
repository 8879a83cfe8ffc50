package live

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Integrations lists the WebhookIntegrations of a namespace, empty for all. An error ends the sequence.
func Integrations(ctx context.Context, c client.Reader, namespace string) iter.Seq2[*v1alpha1.WebhookIntegration, error] {
	return func(yield func(*v1alpha1.WebhookIntegration, error) bool) {
		for page, err := range Pages(ctx, c, &v1alpha1.WebhookIntegrationList{}, client.InNamespace(namespace),
			client.Limit(PageSize)) {
			if err != nil {
				yield(nil, fmt.Errorf("listing integrations: %w", err))
				return
			}
			for i := range page.Items {
				if !yield(&page.Items[i], nil) {
					return
				}
			}
		}
	}
}

// HeartbeatState is what is known of a heartbeat, in a word.
type HeartbeatState string

// The states of heartbeats, in the order in which they are listed.
const (
	HeartbeatMissed  HeartbeatState = "Missed"
	HeartbeatFailed  HeartbeatState = "Failed"  // the last ping reported a failure
	HeartbeatWaiting HeartbeatState = "Waiting" // for its first signal
	HeartbeatHeard   HeartbeatState = "Heard"
)

var heartbeatStates = []HeartbeatState{HeartbeatMissed, HeartbeatFailed, HeartbeatWaiting, HeartbeatHeard}

// Heartbeat is one of an integration.
type Heartbeat struct {
	Namespace   string              `json:"namespace"`
	Integration string              `json:"integration"`
	Name        string              `json:"name"`
	State       HeartbeatState      `json:"state"`
	Last        *v1alpha1.Timestamp `json:"last,omitempty"` // the last signal; nil before the first
	Due         *v1alpha1.Timestamp `json:"due,omitempty"`  // when the next one is expected; nil if none is
}

// Heartbeats lists the heartbeats of a namespace, empty for all: those first about which something is to be done.
func Heartbeats(ctx context.Context, c client.Reader, namespace string) ([]Heartbeat, error) {
	var all []Heartbeat
	for integration, err := range Integrations(ctx, c, namespace) {
		if err != nil {
			return nil, err
		}
		all = append(all, HeartbeatsOf(integration)...)
	}
	slices.SortStableFunc(all, func(a, b Heartbeat) int {
		return cmp.Or(
			cmp.Compare(slices.Index(heartbeatStates, a.State), slices.Index(heartbeatStates, b.State)),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Integration, b.Integration), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// HeartbeatsOf returns the heartbeats of an integration in the order of its spec.
func HeartbeatsOf(integration *v1alpha1.WebhookIntegration) []Heartbeat {
	all := make([]Heartbeat, 0, len(integration.Spec.Heartbeats))
	for i := range integration.Spec.Heartbeats {
		h := &integration.Spec.Heartbeats[i]
		made := Heartbeat{
			Namespace: integration.Namespace, Integration: integration.Name, Name: h.Name, State: HeartbeatWaiting,
		}
		if known := v1alpha1.FindHeartbeat(integration.Status.Heartbeats, h.Name); known != nil {
			made.Last = known.LastSignalTime
			made.State = stateOf(known)
			since := known.LastSignalTime
			if since == nil && h.Required {
				since = known.ObservedTime
			}
			if since != nil {
				made.Due = new(v1alpha1.NewTimestamp(since.Add(h.Every())))
			}
		}
		all = append(all, made)
	}
	return all
}

func stateOf(status *v1alpha1.HeartbeatStatus) HeartbeatState {
	switch {
	case status.MissedTime != nil:
		return HeartbeatMissed
	case status.LastSignalTime == nil:
		return HeartbeatWaiting
	case status.HasFailed():
		return HeartbeatFailed
	}
	return HeartbeatHeard
}

// TallyHeartbeats counts heartbeats by their states, such as "1 missed, 3 heard"; empty if there are none.
func TallyHeartbeats(heartbeats []Heartbeat) string {
	counts := map[HeartbeatState]int{}
	for i := range heartbeats {
		counts[heartbeats[i].State]++
	}
	var parts []string
	for _, state := range heartbeatStates {
		if counts[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[state], strings.ToLower(string(state))))
		}
	}
	return strings.Join(parts, ", ")
}
