package simulation

import (
	"fmt"
	"time"
)

// flood sends requests that each have an idempotency key, and repeats each of them after some minutes.
type flood struct {
	tenant, count int
	over          time.Duration
	salt          uint64 // decides the alerts, and when they are repeated
}

// firstRepeat and lastRepeat are the times after which a sender repeats a request: an AlertEvent stays for ten minutes after it
// was folded, and its name is remembered for two more.
const (
	firstRepeat = time.Minute
	lastRepeat  = 13 * time.Minute
)

func (o flood) do(w *world) {
	w.chores.Go(func() {
		random := seededReader{state: o.salt}
		for i := range o.count {
			a := alert{key: random.number(5), status: statuses[random.number(len(statuses))], severity: severities[i%len(severities)]}
			r := w.senders.request(tenantName(o.tenant), []alert{a}, fmt.Sprintf("flood %d, request %d", o.salt, i))
			to := random.number(len(w.replicas))
			w.senders.deliver(r, to)
			after := firstRepeat + time.Duration(random.number(1000))*(lastRepeat-firstRepeat)/1000
			w.later(after, func() { w.senders.deliver(r, to+1) })
			select {
			case <-w.healed:
				return
			case <-time.After(o.over / time.Duration(o.count)):
			}
		}
	})
}
