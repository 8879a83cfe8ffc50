package oracle

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// life is one Incident object, from its creation to its deletion.
type life struct {
	key    incidentKey
	stored *storedIncident
	model  *modelIncident
	newest int // place in commit order of the newest AlertEvent that was folded

	deletedByUser bool // and a finalizer may hold it
}

func (l *life) String() string {
	return fmt.Sprintf("%s (%s)", l.key, l.stored.Spec.DedupKey)
}

func (h *History) commitIncident(c *Commit) error {
	key := incidentKey{c.Namespace, c.Name}
	l := h.lives[key]
	if c.Deleted {
		h.endLife(key, c)
		return nil
	}
	stored := &storedIncident{}
	if err := json.Unmarshal(c.Object, stored); err != nil {
		return err
	}
	if l == nil || l.stored.Metadata.UID != stored.Metadata.UID {
		l = &life{key: key, stored: &storedIncident{}, model: &modelIncident{}}
		l.stored.Metadata, l.stored.Spec = stored.Metadata, stored.Spec
		h.lives[key] = l
		if !h.concerned[key] && !c.ByUser {
			h.findings.Add("F: %s was created, and no alert was stored for it", l)
		}
	}
	if size := len(c.Object); size > maxIncidentBytes {
		h.findings.Add("B: %s has %d bytes, more than %d", l, size, maxIncidentBytes)
	}
	if n := len(stored.Status.Ledger.Events); n > maxLedger {
		h.findings.Add("B: %s has %d entries in its ledger, more than %d", l, n, maxLedger)
	}
	h.write(l, stored, c)
	return nil
}

func (h *History) endLife(key incidentKey, c *Commit) {
	l := h.lives[key]
	if l == nil {
		return
	}
	if l.stored.Status.State == stateOpen && !c.ByUser && l.stored.Metadata.Deleting == nil {
		h.findings.Add("B: %s is Open, and the operator deleted it", l)
	}
	if c.ByUser || l.deletedByUser {
		h.forgetFolds(key)
	}
	delete(h.lives, key)
	h.findUnmatched(key, c.At)
}

// forgetFolds notes that the ledger is gone which told what was folded. Until the mark of an AlertEvent or its deletion by the
// operator is written, nothing else tells it: a user may delete one that is not folded, and a finalizer hold it.
func (h *History) forgetFolds(key incidentKey) {
	for _, e := range h.existing {
		if e.namespace == key.namespace && e.settled[key.name] == folded && !e.isMarked(key.name) && (!e.deleting || e.removed) {
			e.again[key.name] = true
		}
	}
}

// write judges one version of an Incident by the version before it.
func (h *History) write(l *life, stored *storedIncident, c *Commit) {
	before := l.stored
	l.stored = stored
	h.checkLedger(l, before, stored)
	added := h.added(l, before, stored, c.ByUser)
	if stored.Metadata.Deleting != nil && before.Metadata.Deleting == nil {
		l.deletedByUser = c.ByUser
	}
	if c.ByUser {
		h.takeOver(l, before, added, c.At)
		return
	}
	if stored.Status.AlertCount < before.Status.AlertCount {
		h.findings.Add("A: %s had counted %d alerts, and counts %d", l, before.Status.AlertCount, stored.Status.AlertCount)
	}
	if stored.Status.State == "" {
		return
	}
	model, counted := h.fold(l, added)
	if model == nil {
		h.findings.Add("A: %s: %s", l, describe(l, before, added))
		h.takeOver(l, before, added, c.At)
		return
	}
	if len(counted) > 0 && before.Metadata.Deleting != nil {
		h.findings.Add("B: %s is being deleted, and AlertEvent %s was folded into it", l, counted[0])
	}
	h.settleFolded(l, added, counted, c.At)
	l.model = model
	h.expireAcknowledgement(l, stored, c.At)
	if stored.Status.endedQuiet() && model.state == stateOpen {
		model.endQuiet(stored.Status.Resolved)
		h.quietEnds = append(h.quietEnds, quietEnd{
			l.key, stored.Spec.IntegrationName, stored.Spec.DedupKey, stored.Status.Resolved, c.At,
		})
	}
	if stored.Status.replacesContent() || model.excused {
		model.excuse(&stored.Status)
	}
	if wrong := model.compare(&stored.Status); len(wrong) > 0 {
		h.findings.Add("B: %s: %s", l, strings.Join(wrong, "; "))
		model.adopt(&stored.Status)
	}
}

// expireAcknowledgement ends the acknowledgement in the model where an Incident says that it has expired.
func (h *History) expireAcknowledgement(l *life, stored *storedIncident, at time.Time) {
	if !stored.Status.acknowledgementExpired() || !l.model.acknowledged {
		return
	}
	if expires := l.model.expires; expires.IsZero() || at.Add(h.options.ClockError+time.Second).Before(expires) {
		h.findings.Add("B: %s: an acknowledgement has expired before its time, %s", l, expires)
	}
	l.model.endAcknowledgement()
}

// checkLedger finds AlertEvents that the ledger dropped though they exist.
func (h *History) checkLedger(l *life, before, stored *storedIncident) {
	listed := stored.Status.listed()
	for uid := range before.Status.listed() {
		if e := h.events[uid]; e != nil && !listed[uid] && !e.isGone() && !e.isMarked(l.key.name) {
			h.findings.Add("A: %s dropped AlertEvent %s from its ledger, which exists and is not marked", l, e)
		}
	}
}

// added are the AlertEvents that the ledger lists and did not list before, in commit order. A user may write of AlertEvents of
// another cluster.
func (h *History) added(l *life, before, stored *storedIncident, byUser bool) []*event {
	listed := before.Status.listed()
	var added []*event
	for _, entry := range stored.Status.Ledger.Events {
		e := h.events[entry.UID]
		switch {
		case listed[entry.UID], e == nil && byUser:
		case e == nil:
			h.findings.Add("A: %s has AlertEvent %s in its ledger, which was never stored", l, entry.Name)
		case e.namespace != l.key.namespace:
			h.findings.Add("F: %s has AlertEvent %s in its ledger", l, e)
		case len(e.alerts[l.key.name]) == 0:
			h.findings.Add("A: %s has AlertEvent %s in its ledger, which has no alert of it", l, e)
		default:
			added = append(added, e)
		}
	}
	slices.SortFunc(added, func(a, b *event) int { return a.order - b.order })
	return added
}

// maxUndecided bounds the AlertEvents of one write of which every choice is tried: that they count and that they do not. Of
// further ones all count, or none.
const maxUndecided = 10

// fold returns the model after the write, and the AlertEvents that count; nil if no choice gives the count and the digest
// that are stored.
func (h *History) fold(l *life, added []*event) (*modelIncident, []*event) {
	var must, may, further []*event
	for _, e := range added {
		h.checkForgotten(e)
		switch {
		case e.settled[l.key.name] == folded && !e.again[l.key.name] || e.mustNotCount(l.key.name):
		case e.mayCount(l.key.name) && len(may) < maxUndecided:
			may = append(may, e)
		case e.mayCount(l.key.name):
			further = append(further, e)
		default:
			must = append(must, e)
		}
	}
	for choice := range 2 << len(may) {
		chosen := slices.Clone(must)
		if choice >= 1<<len(may) {
			chosen = append(chosen, further...)
		}
		for i, e := range may {
			if choice&(1<<i) != 0 {
				chosen = append(chosen, e)
			}
		}
		slices.SortFunc(chosen, func(a, b *event) int { return a.order - b.order })
		model := l.model.clone()
		counted := h.replay(l, model, chosen)
		status := &l.stored.Status
		if model.count == status.AlertCount && model.digest == parseDigest(status.Ledger.Digest) {
			return model, counted
		}
	}
	return nil, nil
}

// checkForgotten notes whether an AlertEvent is a second copy that no replica can know any more.
func (h *History) checkForgotten(e *event) {
	first := e.copyOf
	if first == nil || !first.isGone() {
		return
	}
	isLate := h.options.RememberTime > 0 && e.committed.Sub(first.ended) >= h.options.RememberTime
	e.forgotten = e.forgotten || isLate || h.options.Remembers != nil && !h.options.Remembers(first.ended)
}

// replay has the model take the alerts of AlertEvents, and returns those that matched.
func (h *History) replay(l *life, model *modelIncident, events []*event) []*event {
	spec := &l.stored.Spec
	var counted []*event
	for _, e := range events {
		matched := false
		for _, a := range e.alerts[l.key.name] {
			key := a.text("dedupKey")
			if e.integration != "" && e.integration != spec.IntegrationName || key != "" && key != spec.DedupKey {
				continue
			}
			a.integration = spec.IntegrationName
			a.window = h.lateFiringWindow(l.key.namespace, spec.IntegrationName)
			a.acknowledges, a.unsure = h.acknowledges(l.key.namespace, spec.IntegrationName, a.alert)
			matched = model.take(a) || matched
		}
		if matched {
			counted = append(counted, e)
		}
	}
	return counted
}

// settleFolded notes what became of the AlertEvents that the ledger lists now.
func (h *History) settleFolded(l *life, added, counted []*event, at time.Time) {
	for _, e := range counted {
		if e.order < l.newest && !h.options.LooseOrder {
			h.findings.Add("B: %s: AlertEvent %s was folded after one that was stored later", l, e)
		}
		l.newest = max(l.newest, e.order)
	}
	for _, e := range added {
		how := unmatched
		if slices.Contains(counted, e) {
			how = folded
		}
		delete(e.again, l.key.name)
		if e.settled[l.key.name] != folded {
			e.settle(l.key.name, how, at)
		}
		if e.copyOf != nil && how == folded {
			e.copyOf.settle(l.key.name, how, at)
		}
		h.forgetPending(e, l.key.name)
	}
}

// takeOver believes a status, so that the model can go on from it.
func (h *History) takeOver(l *life, before *storedIncident, added []*event, at time.Time) {
	if asJSON(before.Status) == asJSON(l.stored.Status) {
		return
	}
	l.model.adopt(&l.stored.Status)
	h.settleFolded(l, added, nil, at)
	for _, e := range added {
		e.settle(l.key.name, folded, at)
		l.newest = max(l.newest, e.order)
	}
}

// describe says why the count or the digest of a write is wrong.
func describe(l *life, before *storedIncident, added []*event) string {
	var names []string
	for _, e := range added {
		name := fmt.Sprintf("%s (%s)", e.name, statuses(e.alerts[l.key.name]))
		switch {
		case e.settled[l.key.name] == folded:
			name += ", folded before"
		case e.restored:
			name += ", restored"
		case e.copyOf != nil:
			name += ", a second copy of " + e.copyOf.uid
		}
		names = append(names, name)
	}
	return fmt.Sprintf("the count goes from %d to %d and the digest from %q to %q, and the ledger gains [%s]",
		before.Status.AlertCount, l.stored.Status.AlertCount, before.Status.Ledger.Digest, l.stored.Status.Ledger.Digest,
		strings.Join(names, "; "))
}

// appearanceTime is how long after the creation of an integration a replica may not know of it.
const appearanceTime = 10 * time.Second

// acknowledges is how long an alert acknowledges; zero if without an end. It is unsure while a replica may know of no
// integration.
func (h *History) acknowledges(namespace, integration string, a alert) (length time.Duration, unsure bool) {
	if text := a.text("acknowledgeFor"); text != "" {
		length, _ = time.ParseDuration(text)
		return length, false
	}
	stored := h.integrations[incidentKey{namespace, integration}]
	if stored == nil {
		return 0, true
	}
	return stored.Spec.AcknowledgementExpiresAfter.Duration, h.now.Sub(stored.appeared) < appearanceTime
}

func (h *History) lateFiringWindow(namespace, integration string) time.Duration {
	if stored := h.integrations[incidentKey{namespace, integration}]; stored != nil && stored.Spec.LateFiringWindow != nil {
		return stored.Spec.LateFiringWindow.Duration
	}
	return defaultLateFiringWindow
}
