package simulation

import (
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
)

// mostWrites is how often the replicas may write one object within paceTime, and mostFolds the same of an Incident, which each
// alert may change. Two that both lead and see different things may write over each other, but not as fast as they can.
const (
	mostWrites = 100
	mostFolds  = 600
	paceTime   = 10 * time.Second
)

// pace judges how often the replicas write one object.
type pace struct {
	since  map[string]time.Time // when the count of an object began, by resource, namespace and name
	writes map[string]int
	found  *oracle.Findings
}

func newPace(found *oracle.Findings) pace {
	return pace{since: map[string]time.Time{}, writes: map[string]int{}, found: found}
}

func (p *pace) commit(c *change) {
	if !isReplica(c.client) {
		return
	}
	object := c.Resource + " " + c.key.String()
	if now := time.Now(); now.Sub(p.since[object]) >= paceTime {
		p.since[object], p.writes[object] = now, 0
	}
	most := mostWrites
	if c.Resource == "incidents" {
		most = mostFolds
	}
	if p.writes[object]++; p.writes[object] == most {
		p.found.Add("B: the replicas write %s %d times in %s", object, most, paceTime)
	}
}
