// Package heartbeat has the endpoint hear heartbeats: pings, and the requests and alerts that are their signals. What it hears
// is written to the statuses of the Heartbeats, from which the leader finds those that are missed.
package heartbeat

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/heartbeats"
	"github.com/tocsin-dev/tocsin/webhookserver/feature"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// Listener hears the Heartbeats of an index. Its maker has the index follow the manager's cache.
type Listener struct{ *heartbeats.Index }

// New returns a Listener that hears some heartbeats.
func New(beats ...*v1alpha1.Heartbeat) *Listener {
	l := &Listener{heartbeats.NewIndex()}
	for _, beat := range beats {
		l.Set(beat)
	}
	return l
}

// List returns a Listener that hears those heartbeats of an integration that a reader has; nil has none.
func List(ctx context.Context, reader client.Reader, integration types.NamespacedName) (features []feature.Feature, err error) {
	var beats []*v1alpha1.Heartbeat
	if reader != nil {
		beats, err = heartbeats.List(ctx, reader, integration)
	}
	return []feature.Feature{New(beats...)}, err
}

// Take finds the alerts that are signals of heartbeats. They are not stored.
func (l *Listener) Take(integration types.NamespacedName, alerts []mapping.Alert, takers []string) {
	for _, h := range l.Of(integration) {
		for a := range alerts {
			if isSignal(h, &alerts[a]) {
				takers[a] = h.Name // of several with the same key the last one; Accepted notes them all
			}
		}
	}
}

// isSignal reports whether an alert is a signal of a heartbeat that is matched by its key.
func isSignal(h *v1alpha1.Heartbeat, alert *mapping.Alert) bool {
	match := h.Spec.Match
	return match != nil && match.DedupKey != "" && alert.DedupKey == match.DedupKey &&
		alert.Status == v1alpha1.AlertFiring && !alert.Dropped
}

// Accepted returns the signals in a request that was accepted whole, or whose valid part was: then only alerts are signals, not
// the request.
func (l *Listener) Accepted(
	integration types.NamespacedName, alerts []mapping.Alert, whole bool, at time.Time,
) (signals []feature.Report) {
	for _, beat := range l.Of(integration) {
		if beat.IsAnyRequest() && whole ||
			slices.ContainsFunc(alerts, func(alert mapping.Alert) bool { return isSignal(beat, &alert) }) {
			signals = append(signals, Signal{Heartbeat: beat, Kind: v1alpha1.SignalSuccess, Time: at})
		}
	}
	return signals
}

// LinkPeriod is the time after which the slowest heartbeat of the integration's link is missed.
func (l *Listener) LinkPeriod(integration types.NamespacedName) (period time.Duration) {
	for _, beat := range l.Of(integration) {
		if heartbeats.WatchesLink(beat) {
			period = max(period, beat.Spec.Every.Duration+heartbeats.Grace(beat))
		}
	}
	return cmp.Or(period, heartbeats.LinkPeriod) // of the one that is to come
}
