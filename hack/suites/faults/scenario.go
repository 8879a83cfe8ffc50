package main

import (
	"context"
	"fmt"
	"net/http"
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

// scenario is a fault under load.
type scenario struct {
	name  string
	about string // one line for the table
	short bool   // part of the short form

	replicas int      // default: 2, with leader election
	args     []string // of the manager

	fault func(ctx context.Context, run *run) error
}

// run is one run of a scenario.
type run struct {
	*rig
	tenants []tenant
	traffic *traffic
	options oracle.Options // a fault sets what it makes meaningless
	notes   []string       // for the table
}

func (r *run) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// report is what came of a run.
type report struct {
	scenario string
	void     string // why it says nothing
	findings oracle.Findings
	notes    []string

	acknowledged, refused, unknown int
	copies                         int
	rate                           float64
	healed                         time.Duration
	elapsed                        time.Duration
}

// baseline is how long the load runs before the fault.
const baseline = 4 * time.Second

// runScenario starts the load, injects the fault, and checks the result.
func (r *rig) runScenario(ctx context.Context, s *scenario) (*report, error) {
	began := time.Now()
	run, since, err := r.prepare(ctx)
	if err != nil {
		return nil, err
	}
	result := &report{scenario: s.name}
	goroutines := run.goroutines()
	exits := run.exits()

	loadCtx, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	run.traffic.start(loadCtx)
	pause(ctx, time.Second)
	from := time.Now()
	pause(ctx, baseline)
	result.rate = float64(run.traffic.acknowledgedBetween(from, time.Now())) / time.Since(from).Seconds()

	faultErr := s.fault(ctx, run)
	run.setRule(nil)
	ended := time.Now()
	if faultErr == nil {
		faultErr = run.waitAccepting(ctx, ended)
	}
	stopLoad()
	run.traffic.wait()
	if faultErr != nil {
		return nil, fmt.Errorf("%s: %w", s.name, faultErr)
	}

	history, found, err := run.settle(ctx, since, ended)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	result.healed = time.Since(ended)
	result.findings = found
	for _, replica := range run.replicas {
		result.findings = append(result.findings, prefixed("F: ", replica.alarms())...)
	}
	result.findings = append(result.findings, run.leaks(ctx, goroutines, exits)...)
	tally := run.traffic.tally()
	result.acknowledged, result.refused, result.unknown = tally[oracle.Acknowledged], tally[oracle.Refused], tally[oracle.Unknown]
	result.copies = history.Copies()
	run.sweep(ctx)
	result.notes = run.notes
	result.elapsed = time.Since(began)
	if result.rate < leastRate {
		result.void = fmt.Sprintf("only %.0f requests/s before the fault", result.rate)
	}
	return result, nil
}

// sweep deletes what stays for idempotency keys, so that it is not in the way of the next scenario.
func (r *run) sweep(ctx context.Context) {
	for _, t := range r.tenants {
		_ = r.admin.DeleteAllOf(ctx, &v1alpha1.AlertEvent{}, client.InNamespace(t.namespace))
	}
}

// prepare makes two tenants, waits until their tokens are known everywhere, and notes where history begins.
func (r *rig) prepare(ctx context.Context) (*run, int64, error) {
	since, err := r.history.revision(ctx)
	if err != nil {
		return nil, 0, err
	}
	run := &run{rig: r, options: oracle.Options{
		AutoResolveAfter: func(string, string) time.Duration { return autoResolveAfter },
	}}
	for range 2 {
		t, err := r.newTenant(ctx)
		if err != nil {
			return nil, 0, fmt.Errorf("making a tenant: %w", err)
		}
		run.tenants = append(run.tenants, t)
	}
	run.traffic = newTraffic(r, run.tenants)
	return run, since, run.waitKnown(ctx)
}

// waitKnown waits until every replica takes every tenant's token. The requests are dry.
func (r *run) waitKnown(ctx context.Context) error {
	for _, replica := range r.replicas {
		for _, t := range r.tenants {
			err := testenv.AwaitThat(ctx, startTimeout, replica.name+" rejects a new token", func(ctx context.Context) bool {
				_, err := testenv.Call(ctx, http.MethodPost, replica.manager.WebhookURL+t.token+"?dryRun=true", `{"title":"probe"}`)
				return err == nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// waitAccepting waits until the endpoints take alerts again after the fault.
func (r *run) waitAccepting(ctx context.Context, ended time.Time) error {
	err := testenv.AwaitThat(ctx, healTime, "hardly any alert is accepted after the fault", func(context.Context) bool {
		return r.traffic.acknowledgedBetween(ended, time.Now()) >= 20
	})
	pause(ctx, time.Second)
	return err
}

// settle waits until nothing is left to find wrong, and healTime after the fault at the most.
func (r *run) settle(ctx context.Context, since int64, ended time.Time) (*oracle.History, oracle.Findings, error) {
	for {
		ordinary, _, err := r.pendingEvents(ctx)
		late := time.Since(ended) > healTime
		if err == nil && ordinary > 0 && !late {
			pause(ctx, 200*time.Millisecond)
			continue
		}
		history, err := r.readHistory(ctx, since)
		if err != nil {
			return nil, nil, err
		}
		found := r.traffic.judge(history, oracle.Moment{FaultsEnded: ended, Now: time.Now()})
		if len(found) == 0 {
			return history, nil, nil
		}
		if late {
			if ordinary > 0 {
				found.Add("E: %d AlertEvents are left %s after the end of the fault", ordinary, healTime)
			}
			return history, found, nil
		}
		if isHopeless(found) {
			return history, found, nil
		}
		pause(ctx, time.Second)
	}
}

// isHopeless says that time will not mend what was found.
func isHopeless(found oracle.Findings) bool {
	return slices.ContainsFunc(found, func(finding string) bool { return finding[0] == 'D' || finding[0] == 'F' })
}

func prefixed(prefix string, lines []string) []string {
	for i := range lines {
		lines[i] = prefix + lines[i]
	}
	return lines
}
