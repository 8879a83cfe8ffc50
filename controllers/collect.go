package controllers

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// leftCopy is an AlertEvent whose alerts somebody copied into quarantine without confirming it.
type leftCopy struct{ event, moved *v1alpha1.AlertEvent }

// copied says whether there is a quarantined copy of the alerts that an AlertEvent has for the Incident.
func (f *facts) copied(uid string) bool {
	if len(f.copies) > 0 && f.copies[v1alpha1.QuarantineName(uid, f.key.Name)] != nil && f.listed == nil {
		return true
	}
	return f.listed != nil && f.listed.copied(uid, f.key)
}

// void says whether an AlertEvent is a quarantined one that nobody has confirmed. The cache cannot know.
func (f *facts) void(uid string) bool {
	return f.listed != nil && f.listed.eventSet[types.UID(uid)].unconfirmed
}

// collect takes the Incident's AlertEvents from the cache.
func (r *incidentReconciler) collect(ctx context.Context, f *facts) error {
	var list v1alpha1.AlertEventList
	err := r.cache.List(ctx, &list, client.InNamespace(f.key.Namespace),
		client.MatchingFields{incidentNameIndex: f.key.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("reading the AlertEvents: %w", err)
	}
	f.pending, f.events, f.settled, f.tries, f.unconfirmed, f.held = nil, nil, nil, nil, nil, false
	f.copies = map[string]*v1alpha1.AlertEvent{}
	for i := range list.Items {
		event := &list.Items[i]
		f.pending = append(f.pending, event)
		if _, ok := fold.OriginOf(event); ok {
			f.copies[event.Name] = event
		}
	}
	for _, event := range f.pending {
		r.sort(ctx, f, event)
	}
	picked := r.bisection.pick(f.key, f.events)
	f.more = len(picked) < len(f.events)
	f.events = picked
	f.trial = false
	if len(f.events) == 0 {
		f.events = r.bisection.due(f.key, f.tries, f.now)
		f.trial = len(f.events) > 0
	}
	return nil
}

// sort puts an AlertEvent of the Incident where it belongs.
func (r *incidentReconciler) sort(ctx context.Context, f *facts, event *v1alpha1.AlertEvent) {
	switch {
	case r.isMoved(f, event):
	case r.releases.isSettled(event, f.key.Name):
		f.settled = append(f.settled, event)
	case f.listed != nil && !f.listed.has(string(event.UID)):
	case f.copies[event.Name] == event:
		f.tries = append(f.tries, event)
	case isRestored(event):
		if r.releases.discard(event, fold.ResultRestored) {
			log.FromContext(ctx).Info("Discarded AlertEvent restored from a backup", "alertevent", event.Name)
		}
	case r.releases.isReplay(event):
		r.releases.discard(event, fold.ResultReplayed)
	case r.bisection.holds(f.key, event.UID, f.now):
		f.held = true
	default:
		f.events = append(f.events, event)
	}
}

// isMoved says whether the AlertEvent's alerts of the Incident are in quarantine. If that is confirmed, they are settled
// as far as this AlertEvent is concerned: from now on the copy or the ledger has them.
func (r *incidentReconciler) isMoved(f *facts, event *v1alpha1.AlertEvent) bool {
	if !f.copied(string(event.UID)) {
		return r.isCopyOfMoved(f, event)
	}
	moved := f.copies[v1alpha1.QuarantineName(string(event.UID), f.key.Name)]
	switch {
	case moved == nil || r.releases.isSettled(event, f.key.Name):
	case fold.IsUnconfirmed(moved.Labels):
		f.unconfirmed = append(f.unconfirmed, leftCopy{event, moved})
	default:
		r.releases.settle(event, f.key.Name)
	}
	return true
}

// isCopyOfMoved says whether the AlertEvent is a second copy of one whose alerts of the Incident are in quarantine, as a
// late retry makes it: the same name, made by the server, with another UID. It counts nothing.
func (r *incidentReconciler) isCopyOfMoved(f *facts, event *v1alpha1.AlertEvent) bool {
	if len(f.copies) == 0 || !v1alpha1.IsGeneratedEventName(event.Name) {
		return false
	}
	for _, moved := range f.copies {
		if from, ok := fold.OriginOf(moved); ok && from.Name == event.Name && from.UID != string(event.UID) {
			r.releases.settle(event, f.key.Name)
			return true
		}
	}
	return false
}
