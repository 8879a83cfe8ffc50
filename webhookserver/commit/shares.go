package commit

type load struct{ requests, alerts, bytes int }

func (l load) plus(other load) load {
	return load{l.requests + other.requests, l.alerts + other.alerts, l.bytes + other.bytes}
}

func (l load) negative() load { return load{-l.requests, -l.alerts, -l.bytes} }

// isWithin says whether the load is no more than part/of the bound.
func (l load) isWithin(bound load, part, of int) bool {
	return l.alerts*of <= bound.alerts*part && l.bytes*of <= bound.bytes*part
}

// share is the part of the waiting space that the integrations of one namespace use.
type share struct {
	waiting load
	queues  int
}

// shares divides the waiting space between the namespaces.
type shares struct {
	writers    int
	waiting    load              // of all namespaces
	namespaces map[string]*share // those with something waiting or being written
}

// of returns the share of a namespace. The caller adds a queue to it.
func (s *shares) of(namespace string) *share {
	own := s.namespaces[namespace]
	if own == nil {
		own = &share{}
		s.namespaces[namespace] = own
	}
	return own
}

// addWaiting accounts for a load that begins to wait in a queue; a negative one no longer waits.
func (s *shares) addWaiting(q *queue, added load) {
	for _, waiting := range []*load{&q.waiting, &q.share.waiting, &s.waiting} {
		*waiting = waiting.plus(added)
	}
}

// allowsWaiting says whether a namespace may have more waiting: up to half of the whole bound, as long as a quarter of it
// is left. That quarter is for namespaces that have little waiting, so a storm in a few refuses nobody else's alerts.
func (s *shares) allowsWaiting(namespace string, added load) bool {
	own, all := added, s.waiting.plus(added)
	if share := s.namespaces[namespace]; share != nil {
		own = own.plus(share.waiting)
	}
	bound := load{alerts: maxWaitingAlerts, bytes: maxWaitingBytes}
	return own.isWithin(bound, 1, 2) && all.isWithin(bound, 3, 4) ||
		own.isWithin(bound, 1, calmParts) && all.isWithin(bound, 1, 1)
}
