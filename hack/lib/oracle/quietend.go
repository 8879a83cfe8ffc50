package oracle

import (
	"cmp"
	"slices"
	"time"
)

// quietEnd is the end of an episode because no alert came.
type quietEnd struct {
	key                   incidentKey
	integration, dedupKey string
	at                    time.Time // resolvedTime, by the API server's clock
	committed             time.Time
}

const (
	// maxClockError is how far the time of an automatic resolve may be wrong, which is that of the API server.
	maxClockError = time.Minute
	// longestRun is when a resolvedTime must be wrong if the time of the commit is not known.
	longestRun = 30 * time.Minute
)

// checkQuietEnds finds Incidents that were resolved for want of alerts though their senders tried: a request for the key was
// answered, or failed, within the time that is to pass before.
func (h *History) checkQuietEnds(r *requests, now time.Time, f *Findings) {
	for _, s := range h.quietEnds {
		slack := maxClockError
		if s.committed.IsZero() {
			slack = longestRun
		}
		written := cmp.Or(s.committed, now)
		if s.at.After(written.Add(maxClockError)) || written.Sub(s.at) > slack {
			f.Add("B: %s (%s) was resolved without an alert at %s, by a wrong clock", s.key, s.dedupKey, s.at)
			continue
		}
		quiet := h.autoResolveAfter(s.key.namespace, s.integration)
		if quiet == 0 {
			continue // by a lease, or by the default for generated keys
		}
		if d := h.lastTry(r, s, quiet-h.options.ClockError); d != nil {
			f.Add("B: %s (%s) was resolved without an alert at %s, and a request that was sent at %s had the outcome %s",
				s.key, s.dedupKey, s.at, d.Began, d.Outcome)
		}
	}
}

// lastTry returns a delivery of an alert of the Incident within the time before its quiet end. One that a sender repeats
// though it is stored tells nothing new, and neither does one whose idempotency key is that of another, whichever of its
// deliveries got this answer. An acknowledged one whose AlertEvent a user deleted before it
// was folded may count or not.
func (h *History) lastTry(r *requests, s quietEnd, quiet time.Duration) *Delivery {
	for _, record := range r.records {
		if record.got(Conflict) || record.Namespace != s.key.namespace || record.Integration != s.integration ||
			!record.has(s.dedupKey) {
			continue
		}
		for i := range record.Deliveries {
			d := &record.Deliveries[i]
			if h.isStoredBefore(record, d.Began) || d.Outcome == Acknowledged && h.isExcused(record) {
				continue
			}
			if !d.Ended.IsZero() && d.Ended.Before(s.at.Add(-h.options.ReportTime)) && d.Began.After(s.at.Add(-quiet)) {
				return d
			}
		}
	}
	return nil
}

// isStoredBefore says whether the alerts of a record were stored by then.
func (h *History) isStoredBefore(record *Record, by time.Time) bool {
	return !slices.ContainsFunc(record.Alerts, func(sent Sent) bool {
		stored := h.stored[sent.Seq]
		return len(stored) == 0 || !stored[0].committed.Before(by)
	})
}

// isExcused says whether a user deleted each AlertEvent of a record, or forged its marks, before it was folded.
func (h *History) isExcused(record *Record) bool {
	stored := 0
	for _, sent := range record.Alerts {
		for _, e := range h.stored[sent.Seq] {
			if !e.excused {
				return false
			}
			stored++
		}
	}
	return stored > 0
}

func (r *Record) has(key string) bool {
	return slices.ContainsFunc(r.Alerts, func(sent Sent) bool { return sent.Key == key })
}

// autoResolveAfter is that of an integration; zero if it has none.
func (h *History) autoResolveAfter(namespace, integration string) time.Duration {
	if h.options.AutoResolveAfter != nil {
		return h.options.AutoResolveAfter(namespace, integration)
	}
	if stored := h.integrations[incidentKey{namespace, integration}]; stored != nil {
		return stored.Spec.AutoResolveAfter.Duration
	}
	return 0
}
