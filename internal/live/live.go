// Package live lists the Incidents of a namespace or of the whole cluster, filters them, and follows them by a watch.
//
// A watch sends nothing while nothing changes, and also while the API server hangs. A Feed therefore also lists one
// Incident's metadata every few seconds: its data is up to date as long as that succeeds and the watch is established.
package live

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/informers"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

const (
	// probeInterval is the interval of requests that check whether the API server responds.
	probeInterval = 3 * time.Second
	// probeTimeout is the time after which an API server counts as hanging.
	probeTimeout = 5 * time.Second
	// reachablePoll is how often a request that waits for the API server looks whether it responds.
	reachablePoll = 100 * time.Millisecond
	// maxPreliminary is the number of open Incidents that are listed before all at most.
	maxPreliminary = 5000

	// PageSize is how many objects one request lists for the page, which serves many users: an object may have more than 256 KiB.
	PageSize = 50
)

// Change is a change of an Incident.
type Change struct {
	// Incident is the current state or, if it was deleted, the last known one. It must not be modified.
	Incident *v1alpha1.Incident
	Deleted  bool
}

// Feed lists and watches Incidents, and reconnects when the connection is lost.
type Feed struct {
	client    client.WithWatch
	namespace string
	onChange  func(Change)
	prune     func(*v1alpha1.Incident)
	informer  cache.SharedIndexInformer

	mu          sync.Mutex
	unreachable error // of the last probe
	interrupted error // of the last list or watch: a user may be allowed to list but not to watch
	confirmed   time.Time
}

// Follow returns a Feed for a namespace; empty for all. It calls onChange for every existing Incident, open ones first, and
// for every change, one call at a time; onChange must not block for long. Before it stores an Incident, it calls prune, which is
// Prune or removes more.
func Follow(c client.WithWatch, namespace string, prune func(*v1alpha1.Incident), onChange func(Change)) *Feed {
	f := &Feed{client: c, namespace: namespace, prune: prune, onChange: onChange, confirmed: time.Now()}
	source := cache.ToListWatcherWithWatchListSemantics(f.source(), c)
	f.informer = cache.NewSharedIndexInformer(source, &v1alpha1.Incident{}, 0, cache.Indexers{})
	_, err := f.informer.AddEventHandler(informers.Handler(
		func(incident *v1alpha1.Incident, _ bool) { onChange(Change{Incident: incident}) },
		func(incident *v1alpha1.Incident) { onChange(Change{Incident: incident, Deleted: true}) }))
	utilruntime.Must(errors.Join(err, // these fail only after the informer was started
		f.informer.SetTransform(func(object any) (any, error) {
			if incident, ok := object.(*v1alpha1.Incident); ok {
				f.prune(incident)
			}
			return object, nil
		}),
		// Problem returns errors; the default handler would also log them.
		f.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})))
	return f
}

// Prune removes the fields of an Incident that no list, filter or chart of Incidents needs.
func Prune(incident *v1alpha1.Incident) {
	incident.ManagedFields = nil
	incident.Status.Ledger = v1alpha1.Ledger{}
	incident.Status.UnarchivedEpisodes = nil
	alert := &incident.Status.Alert
	alert.Description, alert.Annotations, alert.Values, alert.Custom = "", nil, nil, nil
}

func (f *Feed) source() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			f.awaitReachable(ctx)
			incidents := &v1alpha1.IncidentList{}
			err := f.client.List(ctx, incidents, &client.ListOptions{Namespace: f.namespace, Raw: &options})
			if err != nil { // else the watch tells, which follows
				f.note(ctx, &f.interrupted, err)
			}
			return incidents, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			f.awaitReachable(ctx)
			events, err := f.client.Watch(ctx, &v1alpha1.IncidentList{}, &client.ListOptions{Namespace: f.namespace, Raw: &options})
			if options.SendInitialEvents == nil || !apierrors.IsInvalid(err) {
				f.note(ctx, &f.interrupted, err)
			} // else the API server does not support initial events, and the informer falls back to a list
			return events, err
		},
	}
}

// note notes the result of a request in one of the Feed's errors.
func (f *Feed) note(ctx context.Context, problem *error, err error) {
	if ctx.Err() != nil {
		return // shutting down
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	*problem = err
	if cmp.Or(f.unreachable, f.interrupted) == nil && f.informer.HasSynced() {
		f.confirmed = time.Now()
	}
}

// awaitReachable waits until the API server responds to probes, so that the informer does not back off during an outage.
func (f *Feed) awaitReachable(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, reachablePoll, true, func(context.Context) (bool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.unreachable == nil || apierrors.ReasonForError(f.unreachable) != metav1.StatusReasonUnknown, nil
	})
}

// Run follows the Incidents until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	tasks.Go(func() { f.probe(ctx) })
	f.listOpen(ctx)
	f.informer.RunWithContext(ctx)
}

// listOpen stores open Incidents before the informer lists all, which may be many. The informer then reports what differs:
// also those that were deleted meanwhile. An error is not one of the Feed, which reports those of the informer.
func (f *Feed) listOpen(ctx context.Context) {
	listed := 0
	for page, err := range Pages(ctx, f.client, &v1alpha1.IncidentList{}, client.InNamespace(f.namespace),
		client.Limit(PageSize), client.MatchingFields{"status.state": string(v1alpha1.IncidentOpen)}) {
		if err != nil {
			return
		}
		for i := range page.Items {
			incident := &page.Items[i]
			f.prune(incident)
			_ = f.informer.GetStore().Add(incident) // it has a key
			f.onChange(Change{Incident: incident})
		}
		if listed += len(page.Items); listed >= maxPreliminary {
			return
		}
	}
}

// Pages lists objects of the kind of empty, in pages of the Limit in options. An error ends the sequence.
func Pages[L client.ObjectList](ctx context.Context, c client.Reader, empty L, options ...client.ListOption) iter.Seq2[L, error] {
	return func(yield func(L, error) bool) {
		for next := ""; ; {
			page, _ := empty.DeepCopyObject().(L)
			err := c.List(ctx, page, append(slices.Clip(options), client.Continue(next))...)
			next = page.GetContinue()
			if !yield(page, err) || err != nil || next == "" {
				return
			}
		}
	}
}

func (f *Feed) probe(ctx context.Context) {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		f.note(ctx, &f.unreachable, Check(ctx, f.client, f.namespace))
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Check returns an error unless the API server responds soon and the user may list the Incidents of a namespace; empty for all.
func Check(ctx context.Context, c client.Client, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	one := &metav1.PartialObjectMetadataList{}
	one.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("IncidentList"))
	return c.List(ctx, one, client.InNamespace(namespace), client.Limit(1))
}

// Synced reports whether the initial list is complete.
func (f *Feed) Synced() bool { return f.informer.HasSynced() }

// Incidents returns all Incidents in no order, at least open ones until the initial list is complete. They must not be modified.
func (f *Feed) Incidents() []*v1alpha1.Incident {
	objects := f.informer.GetStore().List()
	incidents := make([]*v1alpha1.Incident, len(objects))
	for i, object := range objects {
		incidents[i], _ = object.(*v1alpha1.Incident)
	}
	return incidents
}

// Incident returns an Incident, nil if it is not known. It must not be modified.
func (f *Feed) Incident(key client.ObjectKey) *v1alpha1.Incident {
	object, _, _ := f.informer.GetStore().GetByKey(key.String()) // a store in memory has no errors
	incident, _ := object.(*v1alpha1.Incident)
	return incident
}

// Problem returns the reason why the Incidents may be out of date; nil if they are up to date.
func (f *Feed) Problem() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return cmp.Or(f.unreachable, f.interrupted)
}

// Age returns the time since the API server last confirmed that the Incidents are up to date.
func (f *Feed) Age() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.confirmed)
}

// Sentence describes an error of a request to the API server without its URL, as error strings are written.
func Sentence(err error) string {
	var status apierrors.APIStatus
	var request *url.Error
	var timeout net.Error
	switch {
	case errors.As(err, &status):
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "the API server does not respond"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the API server refuses connections"
	case errors.As(err, &request):
		return "the API server cannot be reached: " + plaintext.SanitizeLine(request.Err.Error())
	}
	return plaintext.SanitizeLine(err.Error())
}

// Denied reports whether the user lacks permission.
func Denied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }
