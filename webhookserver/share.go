package webhookserver

// share is what the integrations of one namespace have waiting and being written, and in how many queues.
type share struct {
	waiting load
	writes  int
	lanes   int
}

// share returns the share of a namespace. The caller adds a queue to it.
func (c *groupCommitter) share(namespace string) *share {
	s := c.shares[namespace]
	if s == nil {
		s = &share{}
		c.shares[namespace] = s
	}
	return s
}

// wait accounts for what begins to wait in a queue.
func (c *groupCommitter) wait(l *lane, more load) {
	l.waiting.add(more)
	l.share.waiting.add(more)
	c.waiting.add(more)
}

// unwait accounts for what waits no more.
func (c *groupCommitter) unwait(l *lane, less load) {
	l.waiting.subtract(less)
	l.share.waiting.subtract(less)
	c.waiting.subtract(less)
}

// mayHave says whether a namespace may have another writer when so many of its writes have ended. A quarter of the writers
// is left to the others.
func (c *groupCommitter) mayHave(s *share, ended int) bool {
	return s == nil || s.writes-ended < c.slots-c.slots/4
}

// fitsShare says whether a namespace may have more waiting: up to half of the whole bound, as long as a quarter of it is
// left. That quarter is for namespaces that have little waiting, so a storm in a few refuses nobody else's alerts.
func (c *groupCommitter) fitsShare(namespace string, more load) bool {
	own, all := more, c.waiting
	all.add(more)
	if s := c.shares[namespace]; s != nil {
		own.add(s.waiting)
	}
	whole := load{alerts: maxWaitingAlerts, bytes: maxWaitingBytes}
	return own.within(whole, 1, 2) && all.within(whole, 3, 4) ||
		own.within(whole, 1, calmParts) && all.within(whole, 1, 1)
}

// within says whether a load is no more than part/of the bound.
func (l load) within(bound load, part, of int) bool {
	return l.alerts*of <= bound.alerts*part && l.bytes*of <= bound.bytes*part
}

// comesBefore says whether a queue has its turn before another one that has waited longer.
func (l *lane) comesBefore(other *lane) bool {
	if l.share != other.share && l.share.writes != other.share.writes {
		return l.share.writes < other.share.writes
	}
	return l.writes < other.writes
}
