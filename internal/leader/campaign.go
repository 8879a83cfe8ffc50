// Package leader runs work on one replica at a time without tying the process to the lease: a replica that loses the
// lease ends its term and campaigns again, while the rest of the process keeps running.
//
// controller-runtime's manager exits the process instead, because a manager cannot be started twice. Here, the
// controllers are set up again for each term, in a Term, on the caches and clients of the replica's one manager.
//
// Two leaders at once do no harm (see package controllers), so the Lease may be short, and a leader that cannot renew it goes on
// until it sees that another replica has it. client-go's election has to end such a term, and polls; see Lease.
package leader

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
)

// Campaign competes for a lease and works whenever it holds the lease.
type Campaign struct {
	// Lease tells who leads; nil runs one term after another without election.
	Lease *Lease

	// Prepare waits until this replica is able to work. It returns false when ctx has ended.
	Prepare func(ctx context.Context) bool

	// Work runs one term. It must return soon after ctx ends; if it returns earlier, the lease is released.
	Work func(ctx context.Context) error

	// Backoff is how long not to compete after a term that failed, so that another replica can take over.
	Backoff time.Duration
	Log     logr.Logger
}

// Holds reports whether this replica has the lease, and the lease has not run out as last seen. A process that was frozen may
// still be in its term while another replica leads.
func (c *Campaign) Holds() bool { return c.Lease == nil || c.Lease.holds() }

// Start campaigns until ctx ends. It returns when the last term has ended and the lease is released.
func (c *Campaign) Start(ctx context.Context) error {
	if c.Lease != nil {
		defer c.Lease.start(ctx)()
	}
	for c.Prepare(ctx) && c.acquire(ctx) {
		failure := c.term(ctx)
		switch {
		case ctx.Err() != nil:
		case failure == nil:
			c.Log.Info("Lost the lease, campaigning again")
		default:
			c.Log.Error(failure, "Released the lease", "backoff", c.Backoff.String())
			select {
			case <-time.After(c.Backoff):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

func (c *Campaign) acquire(ctx context.Context) bool {
	if c.Lease != nil {
		c.Lease.acquire(ctx)
	}
	return ctx.Err() == nil
}

// term works while this replica has the lease. It returns when the work has ended: nil if the lease was lost or ctx
// has ended, else the reason why the work ended early.
func (c *Campaign) term(ctx context.Context) error {
	c.Log.Info("Became leader")
	working, end := context.WithCancel(ctx)
	defer end()
	var err error
	ended, early := make(chan struct{}), true
	go func() {
		defer close(ended)
		err = c.Work(working)
	}()
	if c.Lease != nil {
		early = c.Lease.keep(ctx, ended)
		end()
		c.Lease.release() // at once: the successor need not wait until the work has ended
	}
	<-ended
	if !early || ctx.Err() != nil {
		return nil
	}
	return cmp.Or(err, errEnded)
}

// errEnded is the failure of a Work that returned nil before its term ended.
var errEnded = errors.New("the leader's work ended early")
