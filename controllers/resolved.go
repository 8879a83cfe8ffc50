package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/pages"
)

// Messages of the condition Archived.
const (
	messageArchiving = "The archive gets a record of every episode that ends."
	messageBehind    = "Incidents of this namespace have waited for the archive for over 15 minutes. They are not deleted before."
)

// Follower is told of Resolved Incidents, which no informer shows. Package forward has one.
type Follower interface {
	// Resolved tells of an Incident that is Resolved, because it was just written, or because a sweep has found it. It must
	// not block, nor change the Incident.
	Resolved(incident *v1alpha1.Incident)

	// Swept says that Resolved was called for all Incidents that were Resolved at the start of the term.
	Swept()
}

// resolvedIncidents takes care of the Incidents that the cache lacks. A sweep visits all of them at the start of a term and at
// each sweepInterval: it tells the followers, has those folded whose retention ends soon, and counts. A namespace that has more
// of them than its share loses the oldest ones.
type resolvedIncidents struct {
	live       client.Reader // from the quorum
	deletions  *incidentDeleter
	lists      *quorumLists
	namespaces []string // those of the manager, one of which may be empty for all
	clock      Clock
	archive    bool // Incidents that the archive does not have are kept
	follower   Follower
	published  *storeCounts // publishes the number of Resolved Incidents as a metric
	reader     pages.Reader
	queue      requestQueue
	isDue      func(context.Context, *v1alpha1.Incident) bool // whether it is to be folded before the next sweep

	mu     sync.Mutex
	swept  bool // counts are known
	counts usages
	since  map[string]usage           // what has changed since a sweep began
	behind map[string]bool            // namespaces with Incidents that have waited for the archive for archivePatience
	looks  map[string]map[string]bool // integrations whose Incidents are to be visited, by namespace and name
	wake   chan struct{}
}

func newResolvedIncidents(
	live client.Reader, deletions *incidentDeleter, lists *quorumLists, counts *storeCounts, options Options,
) *resolvedIncidents {
	return &resolvedIncidents{
		live: live, deletions: deletions, lists: lists, published: counts, namespaces: options.Namespaces,
		clock: options.Clock, archive: options.ArchiveRequired, follower: options.Follower,
		counts: options.usages(maxResolvedBytes), since: map[string]usage{},
		looks: map[string]map[string]bool{}, wake: make(chan struct{}, 1),
	}
}

// written notes that a status was written over another one.
func (s *resolvedIncidents) written(before, after *v1alpha1.Incident) {
	was, is := before.Status.State == v1alpha1.IncidentResolved, after.Status.State == v1alpha1.IncidentResolved
	if was {
		s.count(before, -1)
	}
	if is {
		s.count(after, 1)
		s.follower.Resolved(after)
	}
}

// count notes that an Incident is Resolved, or is so no longer.
func (s *resolvedIncidents) count(incident *v1alpha1.Incident, sign int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.since[incident.Namespace]
	changed.add(usageOf(incident), sign)
	s.since[incident.Namespace] = changed
	s.counts.add(incident.Namespace, usageOf(incident), sign)
	if s.swept && s.counts.isOver(incident.Namespace, 0) {
		s.signal()
	}
}

// deleted notes that an Incident was deleted by this process.
func (s *resolvedIncidents) deleted(incident *v1alpha1.Incident) {
	if incident.Status.State == v1alpha1.IncidentResolved {
		s.count(incident, -1)
	}
}

// look has the Resolved Incidents of an integration visited: their retention may be another one.
func (s *resolvedIncidents) look(integration types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looks[integration.Namespace] == nil {
		s.looks[integration.Namespace] = map[string]bool{}
	}
	s.looks[integration.Namespace][integration.Name] = true
	s.signal()
}

func (s *resolvedIncidents) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// start begins to sweep. The requests go to the queue of the folds.
func (s *resolvedIncidents) start(ctx context.Context, queue requestQueue) error {
	s.queue = queue
	s.published.resolved.Store(s)
	context.AfterFunc(ctx, func() {
		s.published.resolved.CompareAndSwap(s, nil)
		archiveOverdue.Set(0) // of another replica from now on
	})
	go s.run(ctx)
	return nil
}

// number is how many Resolved Incidents there are. It is not ok before they were counted.
func (s *resolvedIncidents) number() (incidents int64, ok bool) {
	if s == nil {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts.incidents.Sum(), s.swept
}

func (s *resolvedIncidents) run(ctx context.Context) {
	logger := log.FromContext(ctx).WithName("sweep")
	evicted := map[string]time.Time{} // when Incidents of the namespace were last evicted
	for due := time.Now(); ctx.Err() == nil; {
		if !time.Now().Before(due) {
			due = time.Now().Add(sweepInterval)
			switch behind, err := s.sweep(ctx); {
			case ctx.Err() != nil:
			case err != nil:
				logger.Error(err, "Resolved Incidents not visited")
				due = time.Now().Add(sweepRetry)
			case behind:
				due = time.Now().Add(archivePatience)
			}
		}
		for namespace, integrations := range s.takeLooks() {
			if err := s.visitIntegrations(ctx, namespace, integrations); err != nil && ctx.Err() == nil {
				logger.Error(err, "Resolved Incidents of integrations not visited", "namespace", namespace)
			}
		}
		for _, namespace := range s.overLimit() {
			if time.Since(evicted[namespace]) < evictionRetry {
				continue
			}
			evicted[namespace] = time.Now()
			if err := s.evict(ctx, namespace); err != nil && ctx.Err() == nil {
				logger.Error(err, "Resolved Incidents not evicted", "namespace", namespace)
			}
		}
		s.wait(ctx, due)
	}
}

// wait returns when a sweep is due, or a moment after there was something else to do: what comes at once is one.
func (s *resolvedIncidents) wait(ctx context.Context, due time.Time) {
	pause := sweepPause
	select {
	case <-ctx.Done():
		return
	case <-time.After(time.Until(due)):
		pause = 0
	case <-s.wake:
	}
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

// takeLooks returns the integrations to visit by namespace: to list the Incidents of one, the API server reads those of all.
func (s *resolvedIncidents) takeLooks() map[string]map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	looks := s.looks
	s.looks = map[string]map[string]bool{}
	return looks
}

// overLimit returns the namespaces that are to lose Resolved Incidents.
func (s *resolvedIncidents) overLimit() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var over []string
	for namespace := range s.counts.incidents.Keys() {
		if s.swept && s.counts.isOver(namespace, 0) {
			over = append(over, namespace)
		}
	}
	return over
}

// sweep visits all Resolved Incidents, and counts them. behind says that the archive does not keep up.
func (s *resolvedIncidents) sweep(ctx context.Context) (behind bool, err error) {
	overdue, late := 0, map[string]bool{}
	s.mu.Lock()
	clear(s.since)
	counts := s.counts.none()
	s.mu.Unlock()
	for _, namespace := range s.namespaces {
		err := s.each(ctx, namespace, func(incident *v1alpha1.Incident) {
			counts.add(incident.Namespace, usageOf(incident), 1)
			if s.isOverdue(incident) {
				overdue++
				late[incident.Namespace] = true
			}
			s.follower.Resolved(incident)
			s.visit(ctx, incident)
		})
		if err != nil {
			return false, err
		}
	}
	archiveOverdue.Set(float64(overdue))
	s.mu.Lock()
	defer s.mu.Unlock()
	for namespace, changed := range s.since { // the list began before
		counts.add(namespace, changed, 1)
	}
	s.counts = counts
	if !s.swept {
		s.follower.Swept()
	}
	s.swept, s.behind = true, late
	return overdue > 0, nil
}

// isOverdue reports whether the archive should have had a Resolved Incident for long.
func (s *resolvedIncidents) isOverdue(incident *v1alpha1.Incident) bool {
	resolved := incident.Status.ResolvedTime
	return resolved != nil && s.clock.Now().Sub(resolved.Time) > archivePatience && !s.mayGo(incident)
}

// Condition returns the condition Archived of an integration, as the last sweep has found it.
func (s *resolvedIncidents) Condition(integration *v1alpha1.WebhookIntegration) (condition metav1.Condition, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	condition = metav1.Condition{
		Type: v1alpha1.ConditionArchived, Status: metav1.ConditionTrue, ObservedGeneration: integration.Generation,
		Reason: v1alpha1.ReasonArchiving, Message: messageArchiving,
	}
	if s.behind[integration.Namespace] {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonArchiveBehind, messageBehind
	}
	return condition, s.swept
}

// visit has a Resolved Incident folded if it is due.
func (s *resolvedIncidents) visit(ctx context.Context, incident *v1alpha1.Incident) {
	if s.isDue(ctx, incident) {
		add(s.queue, client.ObjectKeyFromObject(incident), handler.LowPriority)
	}
}

func (s *resolvedIncidents) visitIntegrations(ctx context.Context, namespace string, names map[string]bool) error {
	return s.each(ctx, namespace, func(incident *v1alpha1.Incident) {
		if names[incident.Spec.IntegrationName] {
			s.visit(ctx, incident)
		}
	})
}

// each calls visit for the Resolved Incidents of a namespace, an empty one for all. A page that fails is tried again: there may
// be hundreds. After each, there is a pause for as long as it took: no alert waits for this.
func (s *resolvedIncidents) each(ctx context.Context, namespace string, visit func(*v1alpha1.Incident)) error {
	selector := fields.OneTermEqualSelector(v1alpha1.StateField, string(v1alpha1.IncidentResolved))
	var began time.Time
	_, err := s.reader.Each(ctx, metav1.ListOptions{}, func(ctx context.Context, page metav1.ListOptions) (runtime.Object, error) {
		began = time.Now()
		list := &v1alpha1.IncidentList{}
		retried := func(err error) bool {
			return ctx.Err() == nil && !errors.Is(err, pages.ErrTooLarge) && !apierrors.IsResourceExpired(err)
		}
		return list, retry.OnError(wait.Backoff{Duration: sweepPause, Steps: pageAttempts}, retried, func() error {
			return s.live.List(ctx, list, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: selector},
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
		case <-time.After(min(time.Since(began), maxListPause)):
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing Resolved Incidents: %w", err)
	}
	return nil
}

// evict deletes the oldest Resolved Incidents of a namespace until it has headroom.
func (s *resolvedIncidents) evict(ctx context.Context, namespace string) error {
	type candidate struct {
		name string
		at   time.Time
	}
	var candidates []candidate
	var own usage
	err := s.each(ctx, namespace, func(incident *v1alpha1.Incident) {
		own.add(usageOf(incident), 1)
		if s.mayGo(incident) {
			ended, _ := fold.Deadline(incident, fold.Policy{})
			candidates = append(candidates, candidate{incident.Name, ended})
		}
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.counts.incidents.Set(namespace, own.incidents) // users may have deleted some
	s.counts.bytes.Set(namespace, own.bytes)
	s.mu.Unlock()
	slices.SortFunc(candidates, func(a, b candidate) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.name, b.name)) })
	evicted := 0
	for chunk := range slices.Chunk(candidates, evictionChunk) {
		if !s.isOver(namespace, headroomPart) {
			break
		}
		names := make([]string, len(chunk))
		for i := range chunk {
			names[i] = chunk[i].name
		}
		n, err := s.evictOnly(ctx, namespace, names)
		if evicted += n; err != nil {
			return err
		}
	}
	if evicted == 0 {
		return nil
	}
	incidentsEvicted.Add(float64(evicted))
	log.FromContext(ctx).Info("The namespace has more Resolved Incidents than its share, evicted the oldest ones",
		"namespace", namespace, "incidents", evicted)
	return nil
}

// evictOnly deletes those of these Incidents that may be deleted, and returns how many.
func (s *resolvedIncidents) evictOnly(ctx context.Context, namespace string, names []string) (evicted int, err error) {
	var incidents []*v1alpha1.Incident
	for _, name := range names {
		incident, err := readIncident(ctx, s.live, types.NamespacedName{Namespace: namespace, Name: name})
		if err != nil {
			return 0, err
		}
		if incident != nil && incident.Status.State == v1alpha1.IncidentResolved && s.mayGo(incident) {
			incidents = append(incidents, incident)
		}
	}
	if len(incidents) == 0 {
		return 0, nil
	}
	listed, err := s.lists.join(ctx, namespace)
	if err != nil {
		return 0, err
	}
	for _, incident := range incidents {
		if !s.isOver(namespace, headroomPart) {
			break
		}
		deleted, err := s.deletions.delete(ctx, incident, func(context.Context, string) (*eventList, error) { return listed, nil })
		if err != nil {
			return evicted, err
		}
		if deleted {
			evicted++
		}
	}
	return evicted, nil
}

// mayGo reports whether a Resolved Incident may be deleted as far as the archive is concerned.
func (s *resolvedIncidents) mayGo(incident *v1alpha1.Incident) bool {
	return !s.archive || fold.IsArchived(&incident.Status)
}

// isFull reports whether a namespace has twice its share of Resolved Incidents: they cannot be deleted, because the archive does
// not have them. Then it may open no others, or etcd would fill.
func (s *resolvedIncidents) isFull(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	incidents, bytes := &s.counts.incidents, &s.counts.bytes
	return incidents.Used(namespace) >= 2*incidents.Own() || bytes.Used(namespace) >= 2*bytes.Own()
}

func (s *resolvedIncidents) isOver(namespace string, part int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts.isOver(namespace, part)
}
