//go:build slow

package faults

import (
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
)

// run is one run of a scenario.
type run struct {
	*rig
	tenants []tenant
	traffic *traffic
	options oracle.Options // a fault sets what it makes meaningless
	since   int64          // the revision of etcd at its beginning
}

// baseline is how long the load runs before the fault.
const baseline = 4 * time.Second

// prepare makes two tenants, and notes where history begins.
func (r *rig) prepare() *run {
	run := &run{rig: r, since: r.revision(), tenants: []tenant{r.newTenant(), r.newTenant()}}
	run.traffic = newTraffic(r, run.tenants)
	return run
}

// underLoad starts the load, injects the fault, and checks the result. It returns the requests a second that were acknowledged
// before the fault.
func (r *run) underLoad(fault func(*run)) (rate float64) {
	goroutines, exits := r.goroutines(), r.exits()
	ctx, stop := context.WithCancel(r.Context)
	defer r.traffic.senders.Wait()
	defer stop()
	r.traffic.start(ctx)
	r.Pause(time.Second)
	from := time.Now()
	r.Pause(baseline)
	rate = float64(r.traffic.acknowledgedBetween(from, time.Now())) / time.Since(from).Seconds()

	fault(r)
	r.setRule(nil)
	ended := time.Now()
	r.awaitThat(healTime, "hardly any alert is accepted after the fault", func() bool {
		return r.traffic.acknowledgedBetween(ended, time.Now()) >= 20
	})
	r.Pause(time.Second)
	stop()
	r.traffic.senders.Wait()
	findings, copies := r.settle(ended)
	r.T.Logf("%.0f/s before, %s, %d second copies, healed in %s",
		rate, r.traffic.tally(), copies, time.Since(ended).Round(100*time.Millisecond))
	r.fail(findings)
	r.findAlarms()
	r.findLeaks(goroutines, exits)
	for _, t := range r.tenants { // what stays for idempotency keys would be in the way of the next scenario
		_ = r.Client.DeleteAllOf(r.Context, &v1alpha1.AlertEvent{}, client.InNamespace(t.namespace))
	}
	return rate
}

// fail enters the first findings.
func (r *run) fail(findings oracle.Findings) {
	r.T.Helper()
	for i, finding := range findings {
		if i == 20 {
			r.T.Errorf("… and %d more", len(findings)-i)
			break
		}
		r.T.Error(finding)
	}
}

// settle waits until nothing is left to find wrong, and healTime after the fault at the most. It returns what is found, and the
// number of second copies.
func (r *run) settle(ended time.Time) (findings oracle.Findings, copies int) {
	var wait time.Duration
	for ; ; r.Pause(wait) {
		ordinary, _, err := r.pendingEvents()
		late := time.Since(ended) > healTime
		if err == nil && ordinary > 0 && !late {
			wait = 200 * time.Millisecond
			continue
		}
		history := r.readHistory()
		findings = r.traffic.judge(history, oracle.Moment{FaultsEnded: ended, Now: time.Now()})
		if late && ordinary > 0 && len(findings) > 0 {
			findings.Add("E: %d AlertEvents are left %s after the end of the fault", ordinary, healTime)
		}
		// Time does not mend what breaks D or F.
		hopeless := slices.ContainsFunc(findings, func(finding string) bool { return finding[0] == 'D' || finding[0] == 'F' })
		if len(findings) == 0 || late || hopeless {
			return findings, history.Copies()
		}
		wait = time.Second
	}
}
