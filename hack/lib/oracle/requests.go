package oracle

import (
	"maps"
	"slices"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

type sentAlert struct {
	*Sent
	record *Record
}

type requests struct {
	records []*Record
	bySeq   map[string]sentAlert
}

func newRequests(records []*Record) *requests {
	r := &requests{records: records, bySeq: map[string]sentAlert{}}
	for _, record := range records {
		for i := range record.Alerts {
			r.bySeq[record.Alerts[i].Seq] = sentAlert{&record.Alerts[i], record}
		}
	}
	return r
}

func (r *Record) key() [3]string { return [3]string{r.Namespace, r.Integration, r.IdempotencyKey} }

// checkStored compares each stored alert with the request that it came from.
func (h *History) checkStored(r *requests, f *Findings) {
	events := slices.SortedFunc(maps.Values(h.events), func(a, b *event) int { return a.order - b.order })
	for _, e := range events {
		for _, name := range e.incidents() {
			for _, a := range e.alerts[name] {
				sent, ok := r.bySeq[a.seq()]
				switch {
				case !ok && (e.byUser || e.restored):
				case !ok:
					f.Add("F: alert %s in %s was sent by nobody", a.id, e.namespace)
				default:
					checkAlert(e, a, sent, f)
				}
			}
		}
	}
	for _, seq := range slices.Sorted(maps.Keys(h.stored)) {
		if sent, ok := r.bySeq[seq]; ok {
			h.checkOnce(sent, h.stored[seq], f)
		}
	}
}

func checkAlert(e *event, a told, sent sentAlert, f *Findings) {
	if sent.record.Namespace != e.namespace {
		f.Add("F: request %s of %s is stored in %s", sent.Seq, sent.record.Namespace, e.namespace)
	}
	key := a.text("dedupKey")
	wrongKey := sent.Key != key && (sent.Key != "" || !v1alpha1.IsGeneratedKey(key))
	if wrongKey || a.text("status") != sent.Status || e.integration != sent.record.Integration {
		f.Add("A: request %s is stored as %s %s of %s, was %s %s of %s",
			sent.Seq, a.text("status"), key, e.integration, sent.Status, sent.Key, sent.record.Integration)
	}
	// After a user has deleted it, another request may be stored under its key.
	if sent.record.Outcome() == Refused && (!e.removed || !sent.record.got(Conflict)) {
		f.Add("D: request %s was refused and is stored", sent.Seq)
	}
}

// checkOnce finds an alert that is stored more often than its request allows: once, and under an idempotency key once more
// after the first AlertEvent is gone.
func (h *History) checkOnce(sent sentAlert, stored []*event, f *Findings) {
	if len(stored) < 2 {
		return
	}
	limit := 1
	if sent.record.IdempotencyKey != "" {
		limit = len(sent.record.Deliveries)
	}
	for i, e := range stored[1:] {
		before := stored[i]
		overlap := before.until == 0 || before.until > e.order
		if i+2 > limit || overlap && !sent.record.got(Partial) {
			f.Add("A: request %s is stored twice, in %s and in %s", sent.Seq, before, e)
		}
	}
}

func (h *History) checkAnswers(r *requests, f *Findings) {
	for _, record := range r.records {
		for i := range record.Deliveries {
			d := &record.Deliveries[i]
			switch d.Outcome {
			case Acknowledged:
				if !h.mayBeLost(d) {
					h.checkAcknowledged(record, d, f)
				}
			case Partial:
				h.checkPartial(record, d, f)
			case Conflict:
				if !h.hasOther(r, record) {
					f.Add("D: request %s got idempotency-conflict, and nothing else is stored under its key", record.Alerts[0].Seq)
				}
			case Unknown, Refused:
			}
		}
	}
}

// mayBeLost says whether the restored etcd may lack what was acknowledged.
func (h *History) mayBeLost(d *Delivery) bool {
	return !h.options.LostUntil.IsZero() && d.Ended.After(h.options.LostFrom) && d.Began.Before(h.options.LostUntil)
}

func (h *History) checkAcknowledged(record *Record, d *Delivery, f *Findings) {
	for _, sent := range record.Alerts {
		if len(h.stored[sent.Seq]) == 0 {
			f.Add("A: request %s (%s %s) was acknowledged and is not stored", sent.Seq, sent.Status, sent.Key)
		}
	}
	if len(d.IDs) > 0 && len(d.IDs) != len(record.Alerts) {
		f.Add("A: request %s has %d alerts, and was acknowledged with %d ids", record.Alerts[0].Seq, len(record.Alerts), len(d.IDs))
		return
	}
	for i, id := range d.IDs {
		seq := record.Alerts[i].Seq
		stored := ""
		if e := h.ids[id]; e != nil {
			stored = e.seqs[id]
		}
		if stored != seq {
			f.Add("A: request %s was acknowledged with the id %s, which is %q", seq, id, stored)
		}
	}
}

// checkPartial counts the alerts of which the answer says that the others are stored.
func (h *History) checkPartial(record *Record, d *Delivery, f *Findings) {
	if d.NotStored == 0 {
		return
	}
	stored := 0
	for _, sent := range record.Alerts {
		stored += len(h.stored[sent.Seq])
	}
	want := len(record.Alerts) - d.NotStored
	if stored < want || len(record.Deliveries) == 1 && stored > want {
		f.Add("A: %d alerts of request %s are stored, and the answer says %d", stored, record.Alerts[0].Seq, want)
	}
}

// hasOther says whether another record with the same idempotency key and other content is stored.
func (h *History) hasOther(r *requests, record *Record) bool {
	isStored := func(sent Sent) bool { return len(h.stored[sent.Seq]) > 0 }
	return record.IdempotencyKey != "" && slices.ContainsFunc(r.records, func(other *Record) bool {
		return other != record && other.key() == record.key() && slices.ContainsFunc(other.Alerts, isStored)
	})
}
