// Package sweep visits the Resolved Incidents, which no cache has, in pages: it has those reconciled whose retention ends
// (package incident deletes them), tells the forwarding of them, counts them, and evicts the oldest of a namespace that has
// more than its share.
package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/pages"
)

const (
	// Interval is how often all Resolved Incidents are visited, and retryInterval is when to try again. After each pause, the
	// Sweeper looks whether somebody has asked for a visit meanwhile.
	Interval      = time.Hour
	retryInterval = 10 * time.Second
	pause         = time.Second

	// pageAttempts is how often a page of Resolved Incidents is tried to be read, with pause between.
	pageAttempts = 5

	// headroomPart is the part of a namespace's share of Resolved Incidents, one in so many, that an eviction frees. It deletes
	// evictionChunk at a time.
	headroomPart  = 20
	evictionChunk = 100

	// evictionRetry is the least time between two evictions in a namespace, and fruitlessRetry that after one that found nothing to
	// delete.
	evictionRetry  = 10 * time.Second
	fruitlessRetry = time.Minute

	// maxResolvedBytes is the limit of what the API server stores of Resolved Incidents.
	maxResolvedBytes = 512 << 20

	// maxPagePause bounds the pause between two pages.
	maxPagePause = time.Second
)

// Listener is told of the Resolved Incidents that a sweep reads. Package forward has one.
type Listener interface {
	// Observe takes in an Incident. It must not block, nor change the Incident.
	Observe(incident *v1alpha1.Incident)
}

// Folds are the folds' part of a sweep, in package incident.
type Folds interface {
	IsDue(ctx context.Context, incident *v1alpha1.Incident) bool
	Delete(ctx context.Context, namespace string, incidents []*v1alpha1.Incident, more func() bool) (deleted int, err error)
}

// Options are the settings of a Sweeper.
type Options struct {
	Live       client.Reader    // from the quorum
	Namespaces []string         // those of the manager, one of which may be empty for all
	Capacity   *capacity.Counts // has the limit of Incidents, and publishes the number of Resolved ones as a metric
	Listener   Listener         // nil: there is none
	Clock      replica.APIClock

	ArchiveRequired bool // Incidents that the archive does not have are kept
}

// Sweeper takes care of the Incidents that the cache lacks. It sweeps at the start of a term and at each Interval.
type Sweeper struct {
	options Options
	reader  pages.Reader
	folds   Folds
	queue   requests.Queue // of the folds

	mu     sync.Mutex
	swept  bool // counts are known
	counts capacity.Usages
	since  map[string]capacity.Usage // what has changed since a sweep or an eviction began to list
	looks  sets.Set[string]          // namespaces whose Incidents are to be visited

	overdue fair.Budget[string] // Incidents that have waited for the archive for archivePatience, by namespaces; only run writes it
}

// New returns a Sweeper that has not started.
func New(options Options) *Sweeper {
	return &Sweeper{
		options: options, counts: capacity.NewUsages(options.Capacity.IncidentLimit(), maxResolvedBytes),
		since: map[string]capacity.Usage{}, looks: sets.New[string](),
	}
}

// NoteWritten counts what has changed where a status was written over another one, or this process deleted an Incident: after is
// nil then.
func (s *Sweeper) NoteWritten(before, after *v1alpha1.Incident) {
	if before.Status.State == v1alpha1.IncidentResolved {
		s.count(before, -1)
	}
	if after != nil && after.Status.State == v1alpha1.IncidentResolved {
		s.count(after, 1)
	}
}

// count notes that an Incident is Resolved, or is so no longer.
func (s *Sweeper) count(incident *v1alpha1.Incident, sign int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	more := capacity.UsageOf(incident).Times(sign)
	s.since[incident.Namespace] = s.since[incident.Namespace].Plus(more)
	s.counts.Add(incident.Namespace, more)
}

// Revisit has the Resolved Incidents of a namespace visited: their retention may be another one.
func (s *Sweeper) Revisit(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks.Insert(namespace)
}

// Start begins to sweep. The requests go to the queue of the folds.
func (s *Sweeper) Start(ctx context.Context, queue requests.Queue, folds Folds) {
	s.queue, s.folds = queue, folds
	s.options.Capacity.PublishResolved(ctx, s.CountResolved)
	context.AfterFunc(ctx, func() { archiveOverdue.Set(0) }) // of another replica from now on
	go s.run(ctx)
}

// CountResolved returns how many Resolved Incidents there are. It is not ok before they were counted.
func (s *Sweeper) CountResolved() (incidents int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for namespace := range s.counts.Incidents.Keys() {
		incidents += s.counts.Incidents.Used(namespace)
	}
	return incidents, s.swept
}

func (s *Sweeper) run(ctx context.Context) {
	logger := log.FromContext(ctx).WithName("sweep")
	var due time.Time
	next := map[string]time.Time{} // when Incidents of the namespace may be evicted again
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if !time.Now().Before(due) {
			due = time.Now().Add(Interval)
			switch err := s.sweep(ctx); {
			case ctx.Err() != nil:
			case err != nil:
				logger.Error(err, "Resolved Incidents not visited")
				due = time.Now().Add(retryInterval)
			case s.overdue.Sum() > 0:
				due = time.Now().Add(archivePatience)
			}
		}
		for namespace := range s.takeLooks() {
			visit := func(incident *v1alpha1.Incident) { s.visit(ctx, incident) }
			if err := s.each(ctx, namespace, visit); err != nil && ctx.Err() == nil {
				logger.Error(err, "Resolved Incidents of a namespace not visited", "namespace", namespace)
			}
		}
		for _, namespace := range s.overLimit() {
			if time.Now().Before(next[namespace]) {
				continue
			}
			evicted, err := s.evict(ctx, namespace)
			if err != nil && ctx.Err() == nil {
				logger.Error(err, "Resolved Incidents not evicted", "namespace", namespace)
			}
			next[namespace] = time.Now().Add(evictionRetry)
			if evicted == 0 {
				next[namespace] = time.Now().Add(fruitlessRetry)
			}
		}
	}, pause)
}

func (s *Sweeper) takeLooks() sets.Set[string] {
	s.mu.Lock()
	defer s.mu.Unlock()
	looks := s.looks
	s.looks = sets.New[string]()
	return looks
}

// overLimit returns the namespaces that are to lose Resolved Incidents.
func (s *Sweeper) overLimit() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var over []string
	for namespace := range s.counts.Incidents.Keys() {
		if s.swept && s.over(namespace, noHeadroom) {
			over = append(over, namespace)
		}
	}
	return over
}

// sweep visits all Resolved Incidents, and counts them.
func (s *Sweeper) sweep(ctx context.Context) error {
	counts := capacity.NewUsages(s.options.Capacity.IncidentLimit(), maxResolvedBytes)
	var overdue fair.Budget[string]
	s.mu.Lock()
	clear(s.since)
	s.mu.Unlock()
	for _, namespace := range s.options.Namespaces {
		err := s.each(ctx, namespace, func(incident *v1alpha1.Incident) {
			counts.Add(incident.Namespace, capacity.UsageOf(incident))
			s.noteOverdue(&overdue, incident)
			if s.options.Listener != nil {
				s.options.Listener.Observe(incident)
			}
			s.visit(ctx, incident)
		})
		if err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for namespace, changed := range s.since { // the list began before
		counts.Add(namespace, changed)
	}
	s.counts = counts
	s.swept = true
	s.overdue = overdue
	archiveOverdue.Set(float64(overdue.Sum()))
	return nil
}

// visit has a Resolved Incident reconciled if it is due.
func (s *Sweeper) visit(ctx context.Context, incident *v1alpha1.Incident) {
	if s.folds.IsDue(ctx, incident) {
		requests.Add(s.queue, client.ObjectKeyFromObject(incident))
	}
}

// each calls visit for the Resolved Incidents of a namespace, an empty one for all. A page that fails is tried again: there may
// be hundreds. After each, there is a pause for as long as it took: no alert waits for this.
func (s *Sweeper) each(ctx context.Context, namespace string, visit func(*v1alpha1.Incident)) error {
	selector := fields.OneTermEqualSelector(v1alpha1.StateField, string(v1alpha1.IncidentResolved))
	var began time.Time
	_, err := s.reader.Each(ctx, metav1.ListOptions{}, func(ctx context.Context, page metav1.ListOptions) (runtime.Object, error) {
		began = time.Now()
		list := &v1alpha1.IncidentList{}
		retried := func(err error) bool {
			return ctx.Err() == nil && !errors.Is(err, pages.ErrTooLarge) && !apierrors.IsResourceExpired(err)
		}
		return list, retry.OnError(wait.Backoff{Duration: pause, Steps: pageAttempts}, retried, func() error {
			return s.options.Live.List(ctx, list, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: selector},
				client.Limit(page.Limit), client.Continue(page.Continue))
		})
	}, func(page runtime.Object, _ int64) error {
		if list, ok := page.(*v1alpha1.IncidentList); ok {
			for i := range list.Items {
				visit(&list.Items[i])
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(time.Since(began), maxPagePause)):
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing Resolved Incidents: %w", err)
	}
	return nil
}

// candidate is a Resolved Incident that an eviction may delete, and when it was resolved.
type candidate struct {
	name string
	at   time.Time
}

// evict deletes the oldest Resolved Incidents of a namespace until it has headroom, and returns how many.
func (s *Sweeper) evict(ctx context.Context, namespace string) (evicted int, err error) {
	var candidates []candidate
	var own capacity.Usage
	s.mu.Lock()
	delete(s.since, namespace)
	s.mu.Unlock()
	err = s.each(ctx, namespace, func(incident *v1alpha1.Incident) {
		own = own.Plus(capacity.UsageOf(incident))
		if s.mayGo(incident) {
			ended, _ := fold.Deadline(incident, fold.Policy{})
			candidates = append(candidates, candidate{incident.Name, ended})
		}
	})
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	own = own.Plus(s.since[namespace])               // the list began before
	s.counts.Incidents.Set(namespace, own.Incidents) // users may have deleted some
	s.counts.Bytes.Set(namespace, own.Bytes)
	s.mu.Unlock()
	slices.SortFunc(candidates, func(a, b candidate) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.name, b.name)) })
	for chunk := range slices.Chunk(candidates, evictionChunk) {
		if err != nil || !s.isOver(namespace) {
			break
		}
		var n int
		n, err = s.evictOnly(ctx, namespace, chunk)
		evicted += n
	}
	if evicted > 0 {
		incidentsEvicted.Add(float64(evicted))
		log.FromContext(ctx).Info("The namespace has more Resolved Incidents than its share, evicted the oldest ones",
			"namespace", namespace, "incidents", evicted)
	}
	return evicted, err
}

// evictOnly deletes those of these Incidents that may be deleted, and returns how many.
func (s *Sweeper) evictOnly(ctx context.Context, namespace string, candidates []candidate) (evicted int, err error) {
	var incidents []*v1alpha1.Incident
	for _, candidate := range candidates {
		incident := &v1alpha1.Incident{}
		err := s.options.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: candidate.name}, incident)
		if client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("reading the Incident: %w", err)
		}
		if incident.Status.State == v1alpha1.IncidentResolved && s.mayGo(incident) {
			incidents = append(incidents, incident)
		}
	}
	return s.folds.Delete(ctx, namespace, incidents, func() bool { return s.isOver(namespace) })
}

// mayGo reports whether a Resolved Incident may be deleted before its time: nothing has still to be done with it.
func (s *Sweeper) mayGo(incident *v1alpha1.Incident) bool {
	return s.isArchived(incident) && !fold.EndIsKeptBack(&incident.Status, s.options.Clock.APITime())
}

// IsFull reports whether a namespace has twice its share of Resolved Incidents: they cannot be deleted, see mayGo. Then it may
// open no others, or etcd would fill.
func (s *Sweeper) IsFull(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	incidents, bytes := &s.counts.Incidents, &s.counts.Bytes
	return incidents.Used(namespace) >= 2*incidents.Own() || bytes.Used(namespace) >= 2*bytes.Own()
}

// isOver reports whether a namespace has more Resolved Incidents than its share without the headroom.
func (s *Sweeper) isOver(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over(namespace, headroomPart)
}

// noHeadroom is a part of which no share has one.
const noHeadroom = math.MaxInt64

// over reports whether a namespace has more Resolved Incidents than its share without one part in so many.
func (s *Sweeper) over(namespace string, part int64) bool {
	incidents, bytes := &s.counts.Incidents, &s.counts.Bytes
	return incidents.IsOver(namespace, incidents.Own()/part) || bytes.IsOver(namespace, bytes.Own()/part)
}
