package oracle

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
)

// Check compares the history with the records of the senders, and finds what should have happened by now.
func (h *History) Check(records []*Record, at Moment) Findings {
	f := h.Findings()
	r := newRequests(records)
	h.checkStored(r, &f)
	h.checkAnswers(r, &f)
	h.checkQuietEnds(r, at.Now, &f)
	h.checkLiveness(at, &f)
	h.checkPromptness(at.Now, &f)
	slices.SortStableFunc(f, func(a, b string) int { return strings.Compare(a[:1], b[:1]) }) // by their guarantees
	return f
}

// checkLiveness finds AlertEvents that should be gone: a while after the faults ended, each waits for a reason that a
// condition of its integration shows, or stays for its idempotency key.
func (h *History) checkLiveness(at Moment, f *Findings) {
	for _, key := range slices.SortedFunc(maps.Keys(h.existing), compareKeys) {
		e := h.existing[key]
		if at.Now.Sub(latest(at.FaultsEnded, e.committed)) < h.options.HealTime || e.deleting ||
			slices.Contains(h.options.DeletedNamespaces, e.namespace) {
			continue
		}
		h.checkLeft(e, at, f)
	}
}

// checkPromptness finds AlertEvents that were folded late though nothing was in the way of their namespace.
func (h *History) checkPromptness(now time.Time, f *Findings) {
	if h.options.Undisturbed == nil {
		return
	}
	for _, e := range slices.SortedFunc(maps.Values(h.events), func(a, b *event) int { return a.order - b.order }) {
		latest := e.committed.Add(h.options.FoldTime)
		switch unsettled := len(e.unsettled()) > 0; {
		case e.excused, e.removed, e.restored, e.copyOf != nil, len(e.alerts) == 0, now.Before(latest), h.mayWaitForAny(e):
		case !unsettled && !e.settledAt.After(latest), !h.options.Undisturbed(e.namespace, e.committed, latest):
		case unsettled:
			f.Add("E: AlertEvent %s is not folded, and nothing was in the way for %s", e, h.options.FoldTime)
		default:
			f.Add("E: AlertEvent %s was folded %s after it was stored, and nothing was in the way", e, e.settledAt.Sub(e.committed))
		}
	}
}

// mayWaitForAny says whether an AlertEvent may wait for one of its Incidents.
func (h *History) mayWaitForAny(e *event) bool {
	return h.options.MayWait == nil ||
		slices.ContainsFunc(e.incidents(), func(name string) bool { return h.options.MayWait(e.namespace, name) })
}

func (h *History) checkLeft(e *event, at Moment, f *Findings) {
	h.checkForgotten(e)
	if unsettled := e.unsettled(); len(unsettled) > 0 {
		h.checkWaiting(e, unsettled, f)
		return
	}
	switch {
	case h.options.MayStay != nil && h.options.MayStay(e.namespace):
	case h.waitsBehind(e) && h.showsWaiting(e):
	case e.lingers() && !e.isMarkedForAll():
		f.Add("C: AlertEvent %s stays for its idempotency key, and no mark tells that its alerts are settled", e)
	case !e.lingers() || h.hasLingered(e, at):
		f.Add("C: AlertEvent %s is left, and all its alerts are settled", e)
	}
}

// checkWaiting finds what is wrong with an AlertEvent that waits for Incidents.
func (h *History) checkWaiting(e *event, unsettled []string, f *Findings) {
	if !h.options.LooseConditions && !h.showsWaiting(e) && !h.isPaused(e, unsettled) {
		f.Add("E: AlertEvent %s waits for %s, and no condition shows why", e, strings.Join(unsettled, ", "))
	}
	for _, name := range unsettled {
		if h.options.MayWait != nil && !h.options.MayWait(e.namespace, name) {
			f.Add("E: AlertEvent %s waits for %s, and nothing is in the way", e, name)
		}
	}
}

// isPaused says whether the ledger of an Incident for which an AlertEvent waits is full, which pauses its folds.
func (h *History) isPaused(e *event, incidents []string) bool {
	return slices.ContainsFunc(incidents, func(name string) bool {
		l := h.lives[incidentKey{e.namespace, name}]
		return l != nil && len(l.stored.Status.Ledger.Events) == maxLedger
	})
}

// waitsBehind says whether alerts of it that match nothing, or that need not count, wait with others, which are to open the
// Incident.
func (h *History) waitsBehind(e *event) bool {
	return slices.ContainsFunc(e.incidents(), func(name string) bool {
		opensIt := func(other *event) bool { return other.settled[name] == pending && other.canOpen(name) }
		return e.settled[name] != folded && !e.mustNotCount(name) &&
			slices.ContainsFunc(h.byIncident[incidentKey{e.namespace, name}], opensIt)
	})
}

// hasLingered says whether an AlertEvent stays longer than its idempotency key needs. A new leader does not know since when
// it is settled, so the time begins anew with each fault.
func (h *History) hasLingered(e *event, at Moment) bool {
	if h.options.KeyedLinger == 0 || e.settledAt.IsZero() {
		return false
	}
	return at.Now.Sub(latest(e.settledAt, at.FaultsEnded)) > h.options.KeyedLinger+h.options.HealTime
}

// showsWaiting says whether the condition AlertsFolded shows that alerts of the namespace wait: of the AlertEvent's integration,
// or, if a user created it without one, of any.
func (h *History) showsWaiting(e *event) bool {
	for key, integration := range h.integrations {
		if key.namespace != e.namespace || e.integration != "" && key.name != e.integration {
			continue
		}
		if meta.IsStatusConditionFalse(integration.Status.Conditions, "AlertsFolded") {
			return true
		}
	}
	return false
}
