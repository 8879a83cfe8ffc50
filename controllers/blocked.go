package controllers

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// blockedError says that no new Incident can be created in a namespace, for a reason that has nothing to do
// with the alert.
type blockedError struct {
	reason string // of the condition AlertsFolded
	quota  string // the name of the ResourceQuota, if that is why
	cause  error
}

func (e *blockedError) Error() string { return e.reason + ": " + e.cause.Error() }

func (e *blockedError) Unwrap() error { return e.cause }

var errIncidentLimit = errors.New("the namespace has as many Incidents as it may have")

// asBlocked returns the blockedError that the failure of a create stands for, nil when it concerns the one
// Incident only.
func asBlocked(err error) *blockedError {
	switch {
	case errors.Is(err, errIncidentLimit):
		return &blockedError{reason: v1alpha1.ReasonIncidentLimit, cause: err}
	case isTerminating(err):
		return &blockedError{reason: v1alpha1.ReasonNamespaceTerminating, cause: err}
	case !apierrors.IsForbidden(err):
		return nil
	}
	// The API server gives both cases no reason of their own.
	if _, words, ok := strings.Cut(err.Error(), "exceeded quota: "); ok {
		quota, _, _ := strings.Cut(words, ",")
		return &blockedError{reason: v1alpha1.ReasonQuotaExceeded, quota: quota, cause: err}
	}
	if strings.Contains(err.Error(), "cannot create resource") {
		return &blockedError{reason: v1alpha1.ReasonForbidden, cause: err}
	}
	return nil // an admission plugin that refuses this Incident
}

// message explains the reason, in words that do not change while it applies.
func (e *blockedError) message() string {
	const wait = " Alerts that need one wait, and posts of such alerts get 503."
	switch e.reason {
	case v1alpha1.ReasonQuotaExceeded:
		return fmt.Sprintf("The ResourceQuota %s rejects new Incidents.", e.quota) + wait
	case v1alpha1.ReasonForbidden:
		return "The operator may not create Incidents in this namespace." + wait
	case v1alpha1.ReasonNamespaceTerminating:
		return "The namespace is being deleted and takes no new Incidents."
	default:
		return "The namespace has as many Incidents as it may have." + wait
	}
}

// blockedNamespaces records the namespaces in which no Incident can be created. Of the Incidents that wait there, one
// tries at a time, with increasing delays: thousands of alerts with new keys cost the API server no more than one,
// and delay no other fold. After the first success all of them try.
type blockedNamespaces struct {
	mu         sync.Mutex
	started    time.Time // when this process became the leader
	namespaces map[string]*blockedNamespace
	tried      map[string]struct{} // namespaces in which this leader has tried
	changed    chan struct{}       // has something when a namespace was blocked or unblocked
}

// blockedNamespace is the state of one of them.
type blockedNamespace struct {
	cause    *blockedError
	failures int
	retryAt  time.Time
	probe    string              // the Incident that tries
	waiting  map[string]struct{} // names of Incidents
}

func newBlockedNamespaces() *blockedNamespaces {
	return &blockedNamespaces{
		namespaces: map[string]*blockedNamespace{}, tried: map[string]struct{}{}, changed: make(chan struct{}, 1),
	}
}

// wait returns how long the creation of an Incident waits. At zero it is to be tried, and no other of the
// namespace is until the outcome is known or as much time has passed again.
func (b *blockedNamespaces) wait(key types.NamespacedName, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.namespaces[key.Namespace]
	if found == nil {
		return 0
	}
	found.waiting[key.Name] = struct{}{}
	if wait := found.retryAt.Sub(now); wait > 0 {
		return wait
	}
	found.probe = key.Name
	found.retryAt = now.Add(found.pause())
	return 0
}

// pause is how long to wait after as many failures as there were.
func (b *blockedNamespace) pause() time.Duration {
	return min(minBlockedRetry<<min(b.failures-1, 10), maxBlockedRetry)
}

// block notes that an Incident could not be created, and returns how long to wait. first says that the
// namespace was not blocked, or for another reason.
func (b *blockedNamespaces) block(key types.NamespacedName, cause *blockedError, now time.Time) (wait time.Duration, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tried[key.Namespace] = struct{}{}
	found := b.namespaces[key.Namespace]
	first = found == nil || found.cause.reason != cause.reason
	if found == nil {
		found = &blockedNamespace{probe: key.Name, waiting: map[string]struct{}{}}
		b.namespaces[key.Namespace] = found
	}
	if first {
		found.cause = cause
		b.signal()
	}
	found.waiting[key.Name] = struct{}{}
	if found.probe == key.Name { // others were under way when the first one failed
		found.probe = ""
		found.failures++
		found.retryAt = now.Add(found.pause())
	}
	return max(staleRetry, found.retryAt.Sub(now)), first
}

// unblock notes that an Incident was created.
func (b *blockedNamespaces) unblock(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tried[namespace] = struct{}{}
	if b.namespaces[namespace] != nil {
		delete(b.namespaces, namespace)
		b.signal()
	}
}

// forget notes that an Incident need not be created any more.
func (b *blockedNamespaces) forget(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.namespaces[key.Namespace]
	if found == nil {
		return
	}
	delete(found.waiting, key.Name)
	if len(found.waiting) == 0 {
		delete(b.namespaces, key.Namespace)
		b.signal()
	}
}

func (b *blockedNamespaces) signal() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// cause returns why the namespace is blocked, nil when it is not.
func (b *blockedNamespaces) cause(namespace string) *blockedError {
	b.mu.Lock()
	defer b.mu.Unlock()
	if found := b.namespaces[namespace]; found != nil {
		return found.cause
	}
	return nil
}

// begin notes that this process leads from now on.
func (b *blockedNamespaces) begin(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.started = now
}

// knows reports whether this leader has tried to create an Incident in the namespace, or has had the time to. Before,
// the findings of its predecessor apply.
func (b *blockedNamespaces) knows(namespace string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, tried := b.tried[namespace]
	return tried || !b.started.IsZero() && now.Sub(b.started) >= blockedGrace
}
