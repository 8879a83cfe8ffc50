package archive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"gocloud.dev/blob"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Opener opens the bucket of the archive.
type Opener func(context.Context) (*blob.Bucket, error)

// archiver archives episodes while its process holds the lease.
type archiver struct {
	open    Opener
	cache   client.Reader // of the names of Incidents that wait
	live    client.Client
	log     logr.Logger
	limiter flowcontrol.RateLimiter
	now     func() time.Time

	queue queue
	store store
}

// Add adds the archiving to a manager whose cache has what Selector selects. It runs while the manager leads.
func Add(mgr ctrl.Manager, open Opener) error {
	live, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("making the client of Incidents: %w", err)
	}
	if err := mgr.Add(newArchiver(open, mgr.GetCache(), live, mgr.GetLogger().WithName("archive"))); err != nil {
		return fmt.Errorf("adding the archiving of episodes: %w", err)
	}
	return nil
}

func newArchiver(open Opener, names client.Reader, live client.Client, log logr.Logger) *archiver {
	return &archiver{
		open: open, cache: names, live: live, log: log, now: time.Now,
		limiter: flowcontrol.NewTokenBucketRateLimiter(readRate, readBurst),
		store:   store{written: map[string]bool{}},
	}
}

// Start implements manager.Runnable: it archives until ctx ends. A failure of the store never ends it.
func (a *archiver) Start(ctx context.Context) error {
	var others sync.WaitGroup // of a round, since each may take long
	for _, repeat := range []func(context.Context){a.combine, a.report} {
		others.Go(func() {
			for ctx.Err() == nil {
				repeat(ctx)
				sleep(ctx, roundInterval)
			}
		})
	}
	defer func() {
		others.Wait()
		if bucket := a.store.bucket.Load(); bucket != nil {
			_ = bucket.Close()
		}
		waitingIncidents.Set(0) // of another process from now on
		oldestWaiting.Set(0)
	}()
	lastSuccess.SetToCurrentTime()
	retry := minRetry
	for ctx.Err() == nil {
		began := time.Now()
		operation, err := a.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		a.conclude(operation, err)
		if err != nil {
			sleep(ctx, retry)
			retry = min(2*retry, maxRetry)
			continue
		}
		retry = minRetry
		sleep(ctx, roundInterval-time.Since(began))
	}
	return nil
}

// sleep waits, at most until ctx ends.
func sleep(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}

// conclude reports how a round went.
func (a *archiver) conclude(operation string, err error) {
	s := &a.store
	if err != nil {
		failuresTotal.WithLabelValues(operation).Inc()
	}
	switch {
	case err != nil && operation != operationIncident:
		if !s.failing {
			a.log.Error(err, "Archive is unavailable; Incidents that it lacks are kept until it is back", "operation", operation)
		}
		s.failing = true
		return
	case err != nil:
		a.log.Error(err, "Incidents cannot be read or noted as archived")
	}
	if s.answered {
		if s.failing {
			a.log.Info("Archive is available")
		}
		s.failing, s.answered = false, false
		lastSuccess.SetToCurrentTime()
	}
}

// report sets the gauges.
func (a *archiver) report(ctx context.Context) {
	if _, err := a.waiting(ctx); err != nil && ctx.Err() == nil {
		a.log.Error(err, "Incidents cannot be counted")
	}
}

// waiting returns the Incidents that wait, in turns by namespace.
func (a *archiver) waiting(ctx context.Context) ([]client.ObjectKey, error) {
	var names v1alpha1.IncidentList
	if err := a.cache.List(ctx, &names, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the Incidents that wait: %w", err)
	}
	return a.queue.update(names.Items, a.now()), nil
}

// round archives what waits at its beginning, and returns the operation that failed. What has no place in its batch waits for the
// next one, or for the next round if this one has lasted long.
func (a *archiver) round(ctx context.Context) (operation string, err error) {
	bucket, err := a.store.reach(ctx, a.open)
	if err != nil {
		return operationRead, err
	}
	waiting, err := a.waiting(ctx)
	if err != nil {
		return operationIncident, err
	}
	var failures []error
	var later []client.ObjectKey
	for began := time.Now(); len(waiting) > 0 && len(failures) < readFailures; {
		b := newBatch()
		for len(waiting) > 0 && !b.isFull() && len(failures) < readFailures {
			switch hasPlace, err := a.read(ctx, waiting[0], b); {
			case err != nil:
				a.queue.putOff(waiting[0])
				failures = append(failures, err)
			case !hasPlace:
				later = append(later, waiting[0])
			}
			waiting = waiting[1:]
		}
		if err := a.write(ctx, bucket, b); err != nil {
			return operationWrite, err
		}
		if err := a.noteAll(ctx, b.notes); err != nil {
			failures = append(failures, err)
		}
		if len(waiting) == 0 && time.Since(began) < roundInterval {
			waiting, later = later, nil
		}
	}
	return operationIncident, errors.Join(failures...)
}
