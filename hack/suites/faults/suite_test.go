//go:build slow

// Package faults is "make test-faults": it proves what docs/guarantees.md promises. It runs real managers on a real etcd and two
// real API servers, puts load on them, injects one fault after the other, and compares what the senders were told with etcd's
// history and with the Incidents.
package faults

import (
	"cmp"
	"flag"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

var (
	manager    = flag.String("manager", testenv.Program("manager"), "the manager, such as one with a seeded bug")
	soak       = flag.Duration("soak", 0, "inject faults at random for so long")
	attackTime = flag.Duration("attack", 10*time.Minute, "how long hostile-bytes attacks")
)

// scenario is a fault under load, a trial that brings its own load, or one that brings its own rig.
type scenario struct {
	name  string
	about string // one line
	short bool   // part of the short form

	replicas int      // default: 2, with leader election
	args     []string // of the manager

	fault func(r *run)
	trial func(r *run)
	alone func(t *testing.T)
}

// TestFaults runs the scenarios one after the other, with -short a selection. They share a control plane, until one fails.
func TestFaults(t *testing.T) {
	interrupted, release := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer release()
	var r *rig
	well := true
	for s := range plan {
		if interrupted.Err() != nil {
			t.Fatal("interrupted")
		}
		if r != nil && (!well || s.alone != nil) {
			r.Stop() // nobody knows what state it is in, or it would take processor time from the other one
			r = nil
		}
		if r == nil && s.alone == nil {
			r = startRig(t, 0)
		}
		well = t.Run(s.name, func(t *testing.T) {
			t.Log(s.about)
			if s.alone != nil {
				s.alone(t)
				return
			}
			r.T = t
			s.play(r)
		})
	}
}

// plan yields the scenarios in turn, or, to soak, faults at random until the time is over.
func plan(yield func(*scenario) bool) {
	for i := range scenarios {
		wanted := *soak == 0 && (scenarios[i].short || !testing.Short())
		if wanted && !yield(&scenarios[i]) {
			return
		}
	}
	for end := time.Now().Add(*soak); time.Now().Before(end); {
		s := &scenarios[rand.IntN(len(scenarios))]
		if s.fault != nil && !yield(s) {
			return
		}
	}
}

// leastRate is the least number of acknowledged requests a second before the fault; a run below it says nothing.
const leastRate = 50

// play starts the replicas, and then the trial, or the load and the fault. A run that says nothing is made again, twice at most.
func (s *scenario) play(r *rig) {
	r.startReplicas(cmp.Or(s.replicas, 2), s.args)
	if s.trial != nil {
		s.trial(r.prepare())
		return
	}
	for again := 2; ; again-- {
		rate := r.prepare().underLoad(s.fault)
		switch {
		case rate >= leastRate || r.T.Failed():
			return
		case again == 0:
			r.T.Fatalf("only %.0f requests/s before the fault", rate)
		}
		r.T.Logf("again: only %.0f requests/s before the fault", rate)
	}
}
