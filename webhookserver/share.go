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

// fitsShare says whether a namespace may have more waiting. It has half of the whole bound at most. When all together have
// more than the bound, it has an equal part of it for itself: so a storm refuses nobody else's alerts, and twice the
// bound is the most that ever waits.
func (c *groupCommitter) fitsShare(namespace string, more load) bool {
	var own load
	others := len(c.shares)
	if s := c.shares[namespace]; s != nil {
		own = s.waiting
		others--
	}
	own.add(more)
	if own.alerts > maxWaitingAlerts/2 || own.bytes > maxWaitingBytes/2 {
		return false
	}
	if c.waiting.alerts+more.alerts <= maxWaitingAlerts && c.waiting.bytes+more.bytes <= maxWaitingBytes {
		return true
	}
	return own.alerts <= maxWaitingAlerts/(others+1) && own.bytes <= maxWaitingBytes/(others+1)
}

// comesBefore says whether a queue has its turn before another one that has waited longer.
func (l *lane) comesBefore(other *lane) bool {
	if l.share != other.share && l.share.writes != other.share.writes {
		return l.share.writes < other.share.writes
	}
	return l.writes < other.writes
}
