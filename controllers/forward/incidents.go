package forward

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	expirecache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
	"github.com/tocsin-dev/tocsin/controllers/forward/silences"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// incidents has the integrations, and the Incidents that the forwarding has to look at again and again: those that are open or
// were resolved a short while ago, and those that silences concern. Most Incidents are neither. It reads from the API server
// those that the cache lacks.
type incidents struct {
	api           client.Reader
	settings      func() *alerts.Settings
	resolvedCache *expirecache.LRUExpireCache // compact Incidents by version: a Resolved one is posted again and again
	reads         flowcontrol.RateLimiter

	mu           sync.Mutex
	index        map[types.NamespacedName]indexed
	integrations map[types.NamespacedName]*v1alpha1.WebhookIntegration // must not be modified
}

func newIncidents(api client.Reader, settings func() *alerts.Settings) *incidents {
	return &incidents{
		api: api, settings: settings, resolvedCache: expirecache.NewLRUExpireCache(maxResolved),
		reads: flowcontrol.NewTokenBucketRateLimiter(readRate, readRate),
		index: map[types.NamespacedName]indexed{}, integrations: map[types.NamespacedName]*v1alpha1.WebhookIntegration{},
	}
}

// version is a version of an Incident.
type version struct {
	types.NamespacedName
	resource string
}

// read returns an Incident and its integration, which is nil if it does not exist. Both are nil if the Incident does not exist,
// or was resolved long ago. The objects must not be modified.
func (i *incidents) read(
	ctx context.Context, key types.NamespacedName,
) (incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, err error) {
	known, integration, ok := i.get(key)
	if incident = known.unresolved; ok && incident == nil {
		incident, err = i.readResolved(ctx, version{key, known.version})
	}
	if err != nil || incident == nil {
		return nil, nil, err
	}
	return incident, integration, nil
}

// mayRead reports whether read needs no request, or may make one now.
func (i *incidents) mayRead(key types.NamespacedName) bool {
	known, _, ok := i.get(key)
	if !ok || known.unresolved != nil {
		return true
	}
	_, ok = i.resolvedCache.Get(version{key, known.version})
	return ok || i.reads.TryAccept()
}

// readResolved returns an Incident that the index knows and the cache lacks, nil if there is none.
func (i *incidents) readResolved(ctx context.Context, known version) (*v1alpha1.Incident, error) {
	kept, _ := i.resolvedCache.Get(known)
	if incident, ok := kept.(*v1alpha1.Incident); ok {
		return incident, nil
	}
	incident, err := i.readLive(ctx, known)
	if incident == nil {
		return nil, err
	}
	if incident.Status.Flapping != nil || incident.Status.State != v1alpha1.IncidentResolved {
		// Its end is forwarded later than the cache shows it, or it is open again.
		i.putUncached(incident)
		known.resource = incident.ResourceVersion
	}
	return i.keepAs(known, incident), nil
}

// readLive reads an Incident from the API server, nil if there is none.
func (i *incidents) readLive(ctx context.Context, known version) (*v1alpha1.Incident, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout) // or an API server that hangs lets all alerts expire
	defer cancel()
	incident := &v1alpha1.Incident{}
	if err := i.api.Get(ctx, known.NamespacedName, incident); err != nil {
		if apierrors.IsNotFound(err) {
			i.noteMissing(known.NamespacedName, known.resource)
		}
		return nil, client.IgnoreNotFound(err)
	}
	return incident, nil
}

// keep keeps a Resolved Incident, so that it need not be read.
func (i *incidents) keep(incident *v1alpha1.Incident) {
	i.keepAs(version{client.ObjectKeyFromObject(incident), incident.ResourceVersion}, incident)
}

func (i *incidents) keepAs(known version, incident *v1alpha1.Incident) *v1alpha1.Incident {
	kept, length := alerts.Compact(incident, i.settings()), resolvedTime
	if incident.Status.Flapping != nil && incident.Status.Flapping.KeptFiring != nil {
		length = keptFiringTime
	}
	i.resolvedCache.Add(known, kept, length)
	return kept
}

// indexed is an Incident in the index.
type indexed struct {
	unresolved    *v1alpha1.Incident // nil: it is Resolved or gone; it may have no status yet, and must not be modified
	uncachedSince time.Time          // when this version was read or written; zero: the cache has shown it; readLost reads old ones
	version       string             // its resourceVersion, or that of its end as the cache showed it
	integration   string
	ended         time.Time // when it was resolved, or when its end is forwarded, if that is later; zero while it is open
	silences      bool      // it is acknowledged, or has or is to have a silence
}

// put indexes an Incident as it is now, and returns what was known. It is no news if this version, or a newer one, was known. One
// that was resolved before the time since is forgotten at once, unless silences concern it.
func (i *incidents) put(incident *v1alpha1.Incident, since time.Time) (before indexed, news bool) {
	return i.replace(incident, since, time.Time{})
}

// putUncached is put for a version that was read from the API server or written there. If the cache does not show it
// within lostAfter, because a watch has lost it, readLost reads it.
func (i *incidents) putUncached(incident *v1alpha1.Incident) (before indexed, news bool) {
	return i.replace(incident, time.Time{}, time.Now())
}

// replace stores also a version that is known already, if the cache shows it now.
func (i *incidents) replace(incident *v1alpha1.Incident, since, uncachedSince time.Time) (before indexed, news bool) {
	key, status := client.ObjectKeyFromObject(incident), &incident.Status
	entry := indexed{
		version: incident.ResourceVersion, integration: incident.Spec.IntegrationName, silences: silences.Concern(status),
	}
	if status.State == v1alpha1.IncidentResolved && status.ResolvedTime != nil {
		entry.ended = fold.ForwardedEnd(status)
	} else {
		entry.unresolved, entry.uncachedSince = incident, uncachedSince
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	before, ok := i.index[key]
	same := before.version == entry.version && before.ended.Equal(entry.ended)
	if ok && (queue.NewerVersion(before.version, entry.version) || same && before.uncachedSince.IsZero()) {
		return before, false
	}
	i.index[key] = entry
	i.tidy(key, since)
	return before, !same
}

// noteGone notes that the cache shows an Incident no longer: it is Resolved or deleted, in this version. It reports whether
// that is news.
func (i *incidents) noteGone(incident *v1alpha1.Incident, now time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	key := client.ObjectKeyFromObject(incident)
	known, ok := i.index[key]
	isNew := queue.NewerVersion(incident.ResourceVersion, known.version)
	isShown := known.unresolved != nil && incident.ResourceVersion == known.version // the cache missed how it went
	if ok && !isNew && !known.uncachedSince.IsZero() {
		// A later write opened it, or the cache missed how it went: it is read.
		known.uncachedSince = known.uncachedSince.Add(-lostAfter)
		i.index[key] = known
		return false
	}
	if ok && !isNew && !isShown {
		return false
	}
	i.index[key] = indexed{
		version: incident.ResourceVersion, integration: incident.Spec.IntegrationName, ended: now, silences: known.silences,
	}
	return true
}

// noteMissing notes that an Incident does not exist. What a poster has posted about it still ends, see alerts.History.
func (i *incidents) noteMissing(key types.NamespacedName, version string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.index[key].version == version {
		delete(i.index, key)
	}
}

// get returns an Incident and its integration, nil if there is none; not ok if the Incident is not indexed.
func (i *incidents) get(key types.NamespacedName) (entry indexed, integration *v1alpha1.WebhookIntegration, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	entry, ok = i.index[key]
	return entry, i.integrations[types.NamespacedName{Namespace: key.Namespace, Name: entry.integration}], ok
}

// replaceIntegration sets an integration, nil if it was deleted, and returns what it was.
func (i *incidents) replaceIntegration(
	key types.NamespacedName, integration *v1alpha1.WebhookIntegration,
) (before *v1alpha1.WebhookIntegration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	before = i.integrations[key]
	if i.integrations[key] = integration; integration == nil {
		delete(i.integrations, key)
	}
	return before
}

// hasIntegration reports whether the cache shows an integration.
func (i *incidents) hasIntegration(integration types.NamespacedName) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.integrations[integration] != nil
}

// lost returns the Incidents that the cache should have shown for long.
func (i *incidents) lost() []types.NamespacedName {
	return i.filter(func(_ types.NamespacedName, entry indexed) bool { return entry.isLost() })
}

// isUnresolved reports whether an Incident is known that is not Resolved; it may have no status yet.
func (i *incidents) isUnresolved(key types.NamespacedName) bool {
	known, _, _ := i.get(key)
	return known.unresolved != nil
}

// active returns the Incidents that are open, and those that were resolved after a time. It forgets what was resolved before.
func (i *incidents) active(since time.Time) (open, ended []types.NamespacedName) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for key, entry := range i.index {
		switch {
		case entry.unresolved != nil:
			open = append(open, key)
		case !entry.isOver(since):
			ended = append(ended, key)
		default:
			i.tidy(key, since)
		}
	}
	return open, ended
}

// silenced returns the Incidents that silences concern.
func (i *incidents) silenced() []types.NamespacedName {
	return i.filter(func(_ types.NamespacedName, entry indexed) bool { return entry.silences })
}

// open returns the Incidents that are open.
func (i *incidents) open() []types.NamespacedName {
	return i.filter(func(_ types.NamespacedName, entry indexed) bool { return entry.unresolved != nil })
}

// muted returns the Incidents that are open and muted by their status.
func (i *incidents) muted() []types.NamespacedName {
	return i.filter(func(_ types.NamespacedName, entry indexed) bool {
		return entry.unresolved != nil && fold.MutedBy(&entry.unresolved.Status) != nil
	})
}

// of returns the Incidents of an integration.
func (i *incidents) of(integration types.NamespacedName) []types.NamespacedName {
	return i.filter(func(key types.NamespacedName, entry indexed) bool {
		return types.NamespacedName{Namespace: key.Namespace, Name: entry.integration} == integration
	})
}

func (i *incidents) filter(selects func(types.NamespacedName, indexed) bool) []types.NamespacedName {
	i.mu.Lock()
	defer i.mu.Unlock()
	var keys []types.NamespacedName
	for key, entry := range i.index {
		if selects(key, entry) {
			keys = append(keys, key)
		}
	}
	return keys
}

// tidy forgets an Incident that was resolved before a time, unless silences concern it.
func (i *incidents) tidy(key types.NamespacedName, since time.Time) {
	if entry := i.index[key]; entry.isOver(since) && !entry.silences {
		delete(i.index, key)
	}
}

// isLost reports whether the cache should have shown this version for long.
func (i indexed) isLost() bool {
	return !i.uncachedSince.IsZero() && time.Since(i.uncachedSince) >= lostAfter
}

// isOver reports whether the Incident was resolved at a time or before.
func (i indexed) isOver(at time.Time) bool { return !i.ended.IsZero() && !i.ended.After(at) }
