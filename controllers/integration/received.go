package integration

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/requests"
)

const (
	// receivedInterval is the least time between two writes of an integration's lastReceivedTime.
	receivedInterval = time.Minute

	// keylessInterval is the same for lastKeylessTime.
	keylessInterval = time.Hour

	// keylessMemory is how long the condition tells of alerts without a dedup key after the last one.
	keylessMemory = 24 * time.Hour

	// handshakeMemory is how long the condition tells of a handshake: Amazon SNS' token is valid for three days. The question itself
	// may be stored as an alert, and lastReceivedTime is old by a minute: an alert counts that comes handshakeSlack after it.
	handshakeMemory = 72 * time.Hour
	handshakeSlack  = 2 * time.Minute
)

// receivedTimes gathers when alerts were received, by integration, and spreads the writes of it: one a
// minute and integration, the last one carrying the newest time.
type receivedTimes struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]*receivedEntry
}

type receivedEntry struct {
	newest  time.Time
	keyless time.Time // of the newest firing alert without a dedup key, zero once it was taken
	written time.Time // when the status was last written with it
	queued  bool      // whether due is going to be called
}

// note records the time of alerts, and reports whether due has to be called because of it.
func (m *receivedTimes) note(key types.NamespacedName, received time.Time, keyless bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	entry := m.entries[key]
	if entry == nil {
		entry = &receivedEntry{}
		m.entries[key] = entry
	}
	if keyless && received.After(entry.keyless) {
		entry.keyless = received
	}
	if !received.After(entry.newest) {
		return false
	}
	entry.newest = received
	first := !entry.queued
	entry.queued = true
	return first
}

// due returns the time to write over the stored one. It is nil when there is nothing newer, or nothing to write before wait is
// over. keyless is when the newest firing alert without a dedup key was received, zero if none was since the last call.
func (m *receivedTimes) due(
	key types.NamespacedName, stored *v1alpha1.Timestamp, now time.Time,
) (received *v1alpha1.Timestamp, wait time.Duration, keyless time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	entry := m.entries[key]
	if entry == nil {
		return nil, 0, keyless
	}
	entry.queued = false
	keyless, entry.keyless = entry.keyless, time.Time{}
	newest := v1alpha1.NewTimestamp(entry.newest)
	since := entry.written
	if stored != nil {
		if !newest.After(stored.Time) {
			return nil, 0, keyless
		}
		// What is stored was received before it was written, so another leader's minute counts too.
		if stored.After(since) && !stored.After(now) {
			since = stored.Time
		}
	}
	if wait = receivedInterval - now.Sub(since); wait > 0 {
		entry.queued = true
		return nil, wait, keyless
	}
	return &newest, 0, keyless
}

func (m *receivedTimes) wrote(key types.NamespacedName, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if entry := m.entries[key]; entry != nil {
		entry.written = now
	}
}

// forget drops an integration that does not exist any more.
func (m *receivedTimes) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, key)
}

// hasKeyless reports whether an alert came without a dedup key. One that resolves may have the key that was generated for
// another.
func hasKeyless(event *v1alpha1.AlertEvent) bool {
	return slices.ContainsFunc(event.Alerts, func(alert v1alpha1.Alert) bool {
		return alert.Status == v1alpha1.AlertFiring && v1alpha1.IsGeneratedKey(alert.DedupKey) ||
			alert.DedupKey == v1alpha1.GeneratedKey(alert.ID)
	})
}

// watchReceived notes when alerts of an integration were received, and enqueues the integration when that is to be written.
func (r *reconciler) watchReceived() handler.EventHandler {
	return requests.OnChange(func(_ context.Context, before, after *v1alpha1.AlertEvent, _ bool, queue requests.Queue) {
		if before != nil || after.Spec.IntegrationName == "" {
			return
		}
		key := types.NamespacedName{Namespace: after.Namespace, Name: after.Spec.IntegrationName}
		received := fold.Earliest(fold.ReceivedTime(after), r.options.Clock.Now()) // not in the future of the own clock
		if r.received.note(key, received, hasKeyless(after)) {
			queue.Add(reconcile.Request{NamespacedName: key})
		}
	})
}
