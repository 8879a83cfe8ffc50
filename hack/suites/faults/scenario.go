package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// leastRate is the least number of acknowledged requests a second before the fault; a run below it says
// nothing.
const leastRate = 50

// scenario is a fault under load, or a trial that brings its own load or rig.
type scenario struct {
	name  string
	about string // one line
	short bool   // part of the short form

	replicas int      // default: 2, with leader election
	args     []string // of the manager

	fault func(ctx context.Context, run *run) error
	trial func(ctx context.Context, s *suite) (*report, error)
}

// run is one run of a scenario.
type run struct {
	*rig
	report
	tenants []tenant
	traffic *traffic
	options oracle.Options // a fault sets what it makes meaningless
	since   int64          // the revision of etcd at its beginning
}

// report is what came of a run.
type report struct {
	scenario string
	void     string // why it says nothing
	findings oracle.Findings
	notes    []string // for the table

	acknowledged, refused, unknown int
	copies                         int
	rate                           float64
	healed                         time.Duration
	elapsed                        time.Duration
}

func (r *report) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// baseline is how long the load runs before the fault.
const baseline = 4 * time.Second

// runScenario starts the load, injects the fault, and checks the result.
func (r *rig) runScenario(ctx context.Context, s *scenario) (*report, error) {
	run, err := r.prepare(ctx)
	if err != nil {
		return nil, err
	}
	goroutines, exits := run.goroutines(), run.exits()

	loadCtx, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	run.traffic.start(loadCtx)
	pause(ctx, time.Second)
	from := time.Now()
	pause(ctx, baseline)
	run.rate = float64(run.traffic.acknowledgedBetween(from, time.Now())) / time.Since(from).Seconds()

	err = s.fault(ctx, run)
	run.setRule(nil)
	ended := time.Now()
	if err == nil {
		err = testenv.AwaitThat(ctx, healTime, "hardly any alert is accepted after the fault", func(context.Context) bool {
			return run.traffic.acknowledgedBetween(ended, time.Now()) >= 20
		})
		pause(ctx, time.Second)
	}
	stopLoad()
	run.traffic.senders.Wait()
	if err == nil {
		err = run.settle(ctx, ended)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	run.healed = time.Since(ended)
	run.findAlarms()
	run.findLeaks(ctx, goroutines, exits)
	run.tally()
	for _, t := range run.tenants { // what stays for idempotency keys would be in the way of the next scenario
		_ = run.Client.DeleteAllOf(ctx, &v1alpha1.AlertEvent{}, client.InNamespace(t.namespace))
	}
	if run.rate < leastRate {
		run.void = fmt.Sprintf("only %.0f requests/s before the fault", run.rate)
	}
	return &run.report, nil
}

// prepare makes two tenants, and notes where history begins.
func (r *rig) prepare(ctx context.Context) (*run, error) {
	since, err := r.revision(ctx)
	if err != nil {
		return nil, err
	}
	run := &run{rig: r, since: since}
	for range 2 {
		t, err := r.newTenant(ctx)
		if err != nil {
			return nil, fmt.Errorf("making a tenant: %w", err)
		}
		run.tenants = append(run.tenants, t)
	}
	run.traffic = newTraffic(r, run.tenants)
	return run, nil
}

// settle waits until nothing is left to find wrong, and healTime after the fault at the most. It enters what is found.
func (r *run) settle(ctx context.Context, ended time.Time) error {
	var wait time.Duration
	for ; ; pause(ctx, wait) {
		ordinary, _, err := r.pendingEvents(ctx)
		late := time.Since(ended) > healTime
		if err == nil && ordinary > 0 && !late {
			wait = 200 * time.Millisecond
			continue
		}
		history, err := r.readHistory(ctx)
		if err != nil {
			return err
		}
		r.copies, r.findings = history.Copies(), r.traffic.judge(history, oracle.Moment{FaultsEnded: ended, Now: time.Now()})
		if late && ordinary > 0 && len(r.findings) > 0 {
			r.findings.Add("E: %d AlertEvents are left %s after the end of the fault", ordinary, healTime)
		}
		// Time does not mend what breaks D or F.
		hopeless := slices.ContainsFunc(r.findings, func(finding string) bool { return finding[0] == 'D' || finding[0] == 'F' })
		if len(r.findings) == 0 || late || hopeless {
			return nil
		}
		wait = time.Second
	}
}
