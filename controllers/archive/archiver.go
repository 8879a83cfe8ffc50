package archive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"gocloud.dev/blob"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Cached is what the cache of the archiver's manager has: which Incidents wait for the archive, and when they were resolved.
func Cached() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&v1alpha1.Incident{}: {
		Field:     fields.OneTermEqualSelector(v1alpha1.ArchiveStateField, string(v1alpha1.ArchiveWaiting)),
		Transform: toName,
	}}
}

func toName(object any) (any, error) {
	incident, ok := object.(*v1alpha1.Incident)
	if !ok {
		return object, nil
	}
	return &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: incident.Namespace, Name: incident.Name, UID: incident.UID, ResourceVersion: incident.ResourceVersion,
		},
		Status: v1alpha1.IncidentStatus{ResolvedTime: incident.Status.ResolvedTime},
	}, nil
}

// archiver archives episodes while its process holds the lease.
type archiver struct {
	cache   client.Reader // of the names of Incidents that wait
	live    client.Client
	log     logr.Logger
	limiter flowcontrol.RateLimiter
	now     func() time.Time

	open     OpenBucket
	bucket   atomic.Pointer[blob.Bucket] // nil until it has answered
	failing  bool                        // it did not answer the last time
	answered bool                        // it has, since the last round that succeeded
	combined time.Time                   // when objects were last combined

	turns map[client.ObjectKey]*turn // of the Incidents that wait
}

// Add adds the archiving to a manager whose cache has what Cached says. It runs while the manager leads.
func Add(mgr ctrl.Manager, open OpenBucket) error {
	live, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("making the client of Incidents: %w", err)
	}
	if err := mgr.Add(newArchiver(open, mgr.GetCache(), live, mgr.GetLogger().WithName("archive"))); err != nil {
		return fmt.Errorf("adding the archiving of episodes: %w", err)
	}
	return nil
}

func newArchiver(open OpenBucket, names client.Reader, live client.Client, log logr.Logger) *archiver {
	return &archiver{
		cache: names, live: live, log: log, now: time.Now, open: open,
		limiter: flowcontrol.NewTokenBucketRateLimiter(readRate, readBurst),
	}
}

// Start implements manager.Runnable: it archives until ctx ends. A failure of the store never ends it.
func (a *archiver) Start(ctx context.Context) error {
	var combining sync.WaitGroup // beside the rounds, since it may take long
	combining.Go(func() { wait.UntilWithContext(ctx, a.combine, roundInterval) })
	defer func() {
		combining.Wait()
		if bucket := a.bucket.Load(); bucket != nil {
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
		} else {
			sleep(ctx, roundInterval-time.Since(began))
			retry = minRetry
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

func (a *archiver) conclude(operation string, err error) {
	if err != nil {
		failuresTotal.WithLabelValues(operation).Inc()
	}
	switch {
	case err != nil && operation != operationIncident:
		if !a.failing {
			a.log.Error(err, "Archive is unavailable; Incidents that it lacks are kept until it is back", "operation", operation)
		}
		a.failing = true
		return
	case err != nil:
		a.log.Error(err, "Incidents cannot be read or noted as archived")
	}
	if a.answered {
		if a.failing {
			a.log.Info("Archive is available")
		}
		a.failing, a.answered = false, false
		lastSuccess.SetToCurrentTime()
	}
}

// round archives what waits at its beginning, and returns the operation that failed. What has no place in its batch waits for the
// next one, or for the next round if this one has lasted long.
func (a *archiver) round(ctx context.Context) (operation string, err error) {
	waiting, err := a.waiting(ctx) // also sets the gauges while the store is away
	if err != nil {
		return operationIncident, err
	}
	bucket, err := a.reach(ctx)
	if err != nil {
		return operationRead, err
	}
	var failures []error
	for began := time.Now(); len(waiting) > 0 && len(failures) < readFailures && time.Since(began) < roundInterval; {
		b := newBatch()
		var later []*turn
		for len(waiting) > 0 && !b.isFull() && len(failures) < readFailures {
			switch hasPlace, err := a.read(ctx, waiting[0].ObjectKey, b); {
			case err != nil:
				waiting[0].failures++
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
		waiting = append(waiting, later...)
	}
	return operationIncident, errors.Join(failures...)
}
