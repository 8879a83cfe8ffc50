// Package leader runs work on one replica at a time without tying the process to the lease: a replica that loses the
// lease ends its term and campaigns again, while everything else in the process goes on.
//
// controller-runtime's manager ends the process instead, because a manager cannot be started twice. Here, what is to
// run during a term is set up anew for each, in a Term, on the caches and clients of the replica's one manager.
package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Campaign competes for a lease and runs a term of work whenever it holds the lease.
type Campaign struct {
	// Lock is the lease. Nil: there is no competition, and term follows term.
	Lock resourcelock.Interface
	// Name labels the metric leader_election_master_status.
	Name string
	// LeaseDuration, RenewDeadline and RetryPeriod are those of client-go's leader election.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration

	// Prepare returns when this replica is able to work, or false when ctx has ended.
	Prepare func(ctx context.Context) bool
	// Work is one term. It returns soon after ctx ends; if it returns earlier, the lease is released.
	Work func(ctx context.Context) error
	// Rest is how long to stay out of the competition after a term that failed, for another replica to take over.
	Rest time.Duration
	Log  logr.Logger

	// working is held during a term: a new one never begins before the last one has ended.
	working sync.Mutex
}

// Start campaigns until ctx ends. It returns when the last term has ended and the lease is released.
func (c *Campaign) Start(ctx context.Context) error {
	for ctx.Err() == nil && c.Prepare(ctx) {
		failure, err := c.compete(ctx)
		if err != nil {
			return err
		}
		if failure == nil {
			if ctx.Err() == nil {
				c.Log.Info("Lost the lease, campaigning again")
			}
			continue
		}
		c.Log.Error(failure, "Released the lease", "rest", c.Rest.String())
		select {
		case <-time.After(c.Rest):
		case <-ctx.Done():
		}
	}
	return nil
}

// compete waits for the lease and runs one term. The failure is why the term ended by itself, nil when the lease was
// lost or ctx ended.
func (c *Campaign) compete(ctx context.Context) (failure, err error) {
	if c.Lock == nil {
		return c.term(ctx), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The competition's own goroutine may begin the term after the lease is lost again, or never.
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
		// Two leaders at once do no harm (see package controllers), and a successor need not wait.
		ReleaseOnCancel: true,
	})
	if err != nil {
		return nil, fmt.Errorf("making the elector: %w", err)
	}
	elector.Run(logr.NewContext(ctx, c.Log))
	c.working.Lock()
	defer c.working.Unlock()
	select {
	case failure = <-failed:
	default:
	}
	return failure, nil
}

// term runs the work, and returns why it ended before ctx did.
func (c *Campaign) term(ctx context.Context) error {
	c.working.Lock()
	defer c.working.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	c.Log.Info("Began a term as leader")
	err := c.Work(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err == nil {
		err = errEnded
	}
	return err
}

// errEnded is the failure of work that returned although its term went on.
var errEnded = errors.New("the work ended before its term")
