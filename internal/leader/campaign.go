// Package leader runs work on one replica at a time without tying the process to the lease: a replica that loses the
// lease ends its term and campaigns again, while the rest of the process keeps running.
//
// controller-runtime's manager exits the process instead, because a manager cannot be started twice. Here, the
// controllers are set up again for each term, in a Term, on the caches and clients of the replica's one manager.
package leader

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Worker works while its replica leads.
type Worker interface {
	// Prepare waits until this replica is able to work. It returns false when ctx has ended.
	Prepare(ctx context.Context) bool

	// Work runs one term. It must return soon after ctx ends; if it returns earlier, the lease is released.
	Work(ctx context.Context) error
}

// Campaign competes for a lease and has its Worker work whenever it holds the lease.
type Campaign struct {
	// Lock is the lease; nil runs one term after another without election.
	Lock resourcelock.Interface
	// Name labels the metric leader_election_master_status.
	Name string
	// LeaseDuration, RenewDeadline and RetryPeriod are those of client-go's leader election.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration

	Worker Worker
	// Backoff is how long not to compete after a term that failed, so that another replica can take over.
	Backoff time.Duration
	Log     logr.Logger

	// working is full during a term: the next one never starts before the last one has ended.
	working chan struct{}

	elector atomic.Pointer[leaderelection.LeaderElector] // the newest one
}

// Holds reports whether this replica has the lease, and the lease has not run out as last seen. A process that was frozen may
// still be in its term while another replica leads.
func (c *Campaign) Holds() bool {
	elector := c.elector.Load()
	return c.Lock == nil || elector != nil && elector.IsLeader() && elector.Check(0) == nil
}

// Start campaigns until ctx ends. It returns when the last term has ended and the lease is released.
func (c *Campaign) Start(ctx context.Context) error {
	c.working = make(chan struct{}, 1)
	for ctx.Err() == nil && c.Worker.Prepare(ctx) {
		switch failure, err := c.compete(ctx); {
		case err != nil:
			return err
		case failure != nil:
			c.Log.Error(failure, "Released the lease", "backoff", c.Backoff.String())
			select {
			case <-time.After(c.Backoff):
			case <-ctx.Done():
			}
		case ctx.Err() == nil:
			c.Log.Info("Lost the lease, campaigning again")
		}
	}
	return nil
}

// compete waits for the lease and runs one term. failure is the reason why the term ended early; nil when the lease was
// lost or ctx ended.
func (c *Campaign) compete(ctx context.Context) (failure, err error) {
	if c.Lock == nil {
		return c.term(ctx), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The elector's goroutine may start the term after the lease is lost again, or never.
	failed := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          c.Lock,
		Name:          c.Name,
		LeaseDuration: c.LeaseDuration,
		RenewDeadline: c.RenewDeadline,
		RetryPeriod:   c.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				if failure := c.term(ctx); failure != nil {
					failed <- failure
				}
				cancel()
			},
			OnStoppedLeading: func() {},
		},
		// Two leaders at once are harmless (see package controllers), and the successor need not wait.
		ReleaseOnCancel: true,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the leader elector: %w", err)
	}
	c.elector.Store(elector)
	elector.Run(logr.NewContext(ctx, c.Log))
	c.working <- struct{}{}
	defer func() { <-c.working }()
	select {
	case failure = <-failed:
	default:
	}
	return failure, nil
}

// term has the Worker work, and returns the reason if it ended before ctx did.
func (c *Campaign) term(ctx context.Context) error {
	c.working <- struct{}{}
	defer func() { <-c.working }()
	if ctx.Err() != nil {
		return nil
	}
	c.Log.Info("Became leader")
	err := c.Worker.Work(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err == nil {
		err = errEnded
	}
	return err
}

// errEnded is the failure of a Worker that returned nil before its term ended.
var errEnded = errors.New("the leader's work ended early")
