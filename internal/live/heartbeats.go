package live

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
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

// HeartbeatState is what is known of a heartbeat, in a word: the reason of its condition.
type HeartbeatState string

type heartbeatWords struct {
	state HeartbeatState
	words string
}

// heartbeatStates are the states of heartbeats, in the order in which they are listed.
var heartbeatStates = []heartbeatWords{
	{v1alpha1.ReasonMissed, "missed"},
	{v1alpha1.ReasonTooLong, "too long"},
	{v1alpha1.ReasonFailed, "failed"},
	{v1alpha1.ReasonInvalidSchedule, "with an invalid schedule"},
	{v1alpha1.ReasonNoIntegration, "without an integration"},
	{v1alpha1.ReasonPingsUnsigned, "with rejected pings"},
	{v1alpha1.ReasonWaiting, "waiting"},
	{v1alpha1.ReasonSuspended, "suspended"},
	{v1alpha1.ReasonHeard, "heard"},
}

func (s HeartbeatState) order() int {
	return slices.IndexFunc(heartbeatStates, func(known heartbeatWords) bool { return known.state == s })
}

// Heartbeat is one of an integration.
type Heartbeat struct {
	Namespace   string              `json:"namespace"`
	Integration string              `json:"integration"`
	Name        string              `json:"name"`
	State       HeartbeatState      `json:"state"`
	Last        *v1alpha1.Timestamp `json:"last,omitempty"` // the last signal; nil before the first
	Due         *v1alpha1.Timestamp `json:"due,omitempty"`  // when it is missed without another one; nil if none is expected
}

// Heartbeats lists the heartbeats of a namespace, empty for all: those first about which something is to be done.
func Heartbeats(ctx context.Context, c client.Reader, namespace string) (all []Heartbeat, err error) {
	for page, err := range Pages(ctx, c, &v1alpha1.HeartbeatList{}, client.InNamespace(namespace), client.Limit(PageSize)) {
		if err != nil {
			return nil, fmt.Errorf("listing heartbeats: %w", err)
		}
		for i := range page.Items {
			h := &page.Items[i]
			made := Heartbeat{
				Namespace: h.Namespace, Integration: h.Spec.IntegrationName, Name: h.Name, State: v1alpha1.ReasonWaiting,
				Last: h.Status.LastSignalTime, Due: h.Status.NextDueTime,
			}
			if heard := meta.FindStatusCondition(h.Status.Conditions, v1alpha1.ConditionHeard); heard != nil {
				made.State = HeartbeatState(heard.Reason)
			}
			all = append(all, made)
		}
	}
	slices.SortStableFunc(all, func(a, b Heartbeat) int {
		return cmp.Or(cmp.Compare(a.State.order(), b.State.order()), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// TallyHeartbeats counts heartbeats by their states, such as "1 missed, 3 heard"; empty if there are none.
func TallyHeartbeats(heartbeats []Heartbeat) string {
	counts := map[HeartbeatState]int{}
	for i := range heartbeats {
		counts[heartbeats[i].State]++
	}
	var parts []string
	for _, known := range heartbeatStates {
		if counts[known.state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[known.state], known.words))
		}
	}
	return strings.Join(parts, ", ")
}
