// Package states tells users the states of heartbeats.
package states

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/live"
)

// Heartbeats is the feature of that name.
type Heartbeats struct{}

// Kind implements live.Feature.
func (Heartbeats) Kind() string { return "Heartbeat" }

// state is what is known of a heartbeat, in a word: the reason of its condition.
type state struct {
	name    string
	words   string
	trouble live.Trouble
}

// states are in the order in which heartbeats are listed.
var states = []state{
	{v1alpha1.ReasonMissed, "missed", live.Broken},
	{v1alpha1.ReasonTooLong, "too long", live.Broken},
	{v1alpha1.ReasonFailed, "failed", live.Broken},
	{v1alpha1.ReasonInvalidSchedule, "with an invalid schedule", live.Broken},
	{v1alpha1.ReasonNoIntegration, "without an integration", live.Unsettled},
	{v1alpha1.ReasonPingsUnsigned, "with rejected pings", live.Unsettled},
	{v1alpha1.ReasonWaiting, "waiting", live.Unsettled},
	{v1alpha1.ReasonSuspended, "suspended", live.NoTrouble},
	{v1alpha1.ReasonHeard, "heard", live.NoTrouble},
}

func order(name string) int {
	return slices.IndexFunc(states, func(known state) bool { return known.name == name })
}

// List implements live.Feature.
func (Heartbeats) List(ctx context.Context, c client.Reader, namespace string) (all []live.Part, err error) {
	for page, err := range live.Pages(ctx, c, &v1alpha1.HeartbeatList{}, client.InNamespace(namespace),
		client.Limit(live.PageSize)) {
		if err != nil {
			return nil, fmt.Errorf("listing heartbeats: %w", err)
		}
		for i := range page.Items {
			h := &page.Items[i]
			part := live.Part{
				Namespace: h.Namespace, Integration: h.Spec.IntegrationName, Name: h.Name, State: v1alpha1.ReasonWaiting,
				Last: h.Status.LastSignalTime, Due: h.Status.NextDueTime,
			}
			if heard := meta.FindStatusCondition(h.Status.Conditions, v1alpha1.ConditionHeard); heard != nil {
				part.State = heard.Reason
			}
			if known := order(part.State); known >= 0 {
				part.Trouble = states[known].trouble
			}
			all = append(all, part)
		}
	}
	slices.SortStableFunc(all, func(a, b live.Part) int {
		return cmp.Or(cmp.Compare(order(a.State), order(b.State)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// Listed is a heartbeat as an assistant reads it.
type Listed struct {
	Name  string             `json:"name"`
	State string             `json:"state"`
	Last  v1alpha1.Timestamp `json:"last,omitzero"`
	Due   v1alpha1.Timestamp `json:"due,omitzero"`
}

// ListedOf returns what assistants read of the heartbeats among parts, by their kinds.
func ListedOf(parts map[string][]live.Part) (all []Listed) {
	for _, one := range parts[Heartbeats{}.Kind()] {
		last, due := v1alpha1.NewTimestamp(one.Last.OrZero()), v1alpha1.NewTimestamp(one.Due.OrZero())
		all = append(all, Listed{one.Name, one.State, last, due})
	}
	return all
}

// Tally implements live.Feature.
func (Heartbeats) Tally(parts []live.Part) string {
	counts := map[string]int{}
	for i := range parts {
		counts[parts[i].State]++
	}
	var texts []string
	for _, known := range states {
		if counts[known.name] > 0 {
			texts = append(texts, fmt.Sprintf("%d %s", counts[known.name], known.words))
		}
	}
	return strings.Join(texts, ", ")
}
