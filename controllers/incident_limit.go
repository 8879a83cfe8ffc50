package controllers

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// incidentLimit says how many Incidents a namespace may have.
type incidentLimit struct {
	capacity v1alpha1.Capacity
	counts   *storeCounts
}

// allows reports whether the namespace may have as many further Incidents.
func (l *incidentLimit) allows(namespace string, incidents int64) bool {
	own, all, namespaces := l.counts.countIncidents(namespace)
	if own == 0 {
		namespaces++
	}
	return l.capacity.Allows(own+incidents-1, all+incidents-1, namespaces)
}

// headroom is how many Incidents a namespace is to be able to create before the next eviction: with it, the
// webhook server need not reject any alert while there are Resolved Incidents.
func (l *incidentLimit) headroom() int64 { return 1 + l.capacity.Own()/headroomPart }

// evictor deletes the oldest Resolved Incidents of a namespace that is near its limit of Incidents, before
// their retention is over. A request names a namespace.
type evictor struct {
	cache     client.Reader
	lists     *quorumList
	limit     *incidentLimit
	deletions *incidentDeleter

	archive Archive // nil: episodes are not archived
}

// Reconcile deletes Resolved Incidents until the namespace can have enough further ones.
func (e *evictor) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	namespace := req.Name
	headroom := e.limit.headroom()
	if e.limit.allows(namespace, headroom) {
		return ctrl.Result{}, nil
	}
	resolved := e.limit.counts.resolved(namespace)
	if len(resolved) == 0 {
		return ctrl.Result{}, nil // the next Incident that resolves comes by itself
	}
	evicted := int64(0)
	for names := range slices.Chunk(resolved, int(headroom)) {
		deleted, err := e.evict(ctx, namespace, names, headroom-evicted)
		incidentsEvicted.Add(float64(deleted))
		if evicted += deleted; err != nil {
			return ctrl.Result{}, err
		}
		if evicted >= headroom || e.limit.allows(namespace, headroom) {
			break
		}
	}
	if evicted > 0 {
		log.FromContext(ctx).Info("Evicted resolved Incidents: the namespace is near its limit", "incidents", evicted)
	}
	return ctrl.Result{RequeueAfter: evictionRetry}, nil
}

// evict deletes at most so many of the Incidents, until the namespace can have enough further ones. It returns how many.
func (e *evictor) evict(ctx context.Context, namespace string, names []string, most int64) (evicted int64, err error) {
	incidents := make([]*v1alpha1.Incident, 0, len(names))
	for _, name := range names {
		incident := &v1alpha1.Incident{}
		err := e.cache.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, incident, client.UnsafeDisableDeepCopy)
		switch {
		case err == nil && incident.Status.State == v1alpha1.IncidentResolved && isArchived(e.archive, incident):
			incidents = append(incidents, incident)
		case client.IgnoreNotFound(err) != nil:
			return 0, fmt.Errorf("reading the Incident %s: %w", name, err)
		}
	}
	if len(incidents) == 0 {
		return 0, nil
	}
	listed, err := e.lists.join(ctx)
	if err != nil {
		return 0, err
	}
	list := func(context.Context) (*eventList, error) { return listed, nil }
	for _, incident := range incidents {
		if evicted >= most || e.limit.allows(namespace, e.limit.headroom()) {
			break
		}
		deleted, err := e.deletions.delete(ctx, incident, list)
		if err != nil {
			return evicted, err
		}
		if deleted {
			evicted++
			log.FromContext(ctx).Info("Evicted resolved Incident", "incident", incident.Name,
				"integration", incident.Spec.IntegrationName)
		}
	}
	return evicted, nil
}

// watch enqueues a namespace that is near its limit when one of its Incidents comes or is resolved, and every capacityCheck
// for those that were there at the start.
func (e *evictor) watch(ctx context.Context, queue requestQueue) error {
	counts := e.limit.counts
	check := func(namespace string) {
		if !e.limit.allows(namespace, e.limit.headroom()) {
			queue.Add(ctrl.Request{NamespacedName: types.NamespacedName{Name: namespace}})
		}
	}
	counts.changed.Store(&check)
	context.AfterFunc(ctx, func() { counts.changed.CompareAndSwap(&check, nil) })
	go every(ctx, capacityCheck, nil, func() {
		for _, namespace := range counts.incidentNamespaces() {
			check(namespace)
		}
	})
	return nil
}
