package forward

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	expirecache "k8s.io/apimachinery/pkg/util/cache"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/informers"
)

// term is the forwarding of one leader's term: an endpoint for each entry of the configuration. All memory begins anew.
type term struct {
	forwarder *Forwarder
	reader    client.Reader // the cache
	live      client.Reader // the API server
	resolver  resolver
	index     *index
	wholes    *expirecache.LRUExpireCache // of *v1alpha1.Incident by wholeKey; nil: there is none
	synced    []func() bool               // whether the existing objects were seen
	swept     atomic.Bool                 // whether the Resolved Incidents were seen
	signal    signal                      // the configuration changed

	mu        sync.Mutex
	endpoints map[string]*endpoint // by Alertmanager.name
}

func newTerm(f *Forwarder, reader, live client.Reader, resolver resolver) *term {
	return &term{
		forwarder: f, reader: reader, live: live, resolver: resolver, index: newIndex(),
		wholes: expirecache.NewLRUExpireCache(maxWholes), signal: newSignal(), endpoints: map[string]*endpoint{},
	}
}

// Start implements manager.Runnable: it keeps the endpoints of the newest configuration until ctx ends.
func (t *term) Start(ctx context.Context) error {
	var endpoints sync.WaitGroup
	defer endpoints.Wait()
	running := map[string]context.CancelFunc{}
	var applied *Config
	for ctx.Err() == nil {
		synced := !slices.ContainsFunc(t.synced, func(synced func() bool) bool { return !synced() })
		if !synced {
			sleep(ctx, syncInterval, nil)
			continue
		}
		if config := t.forwarder.current(); config != applied {
			t.apply(ctx, config, running, &endpoints)
			applied = config
		}
		sleep(ctx, reloadInterval, t.signal)
	}
	return nil
}

// apply starts, configures and stops endpoints.
func (t *term) apply(ctx context.Context, config *Config, running map[string]context.CancelFunc, group *sync.WaitGroup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	configured := map[string]bool{}
	for i := range config.Alertmanagers {
		entry := &config.Alertmanagers[i]
		name, target := entry.name(), &target{config: config, entry: entry}
		configured[name] = true
		if e := t.endpoints[name]; e != nil {
			e.configure(target)
			continue
		}
		e := newEndpoint(target, t, t.forwarder.clock, t.resolver, t.forwarder.log)
		var runs context.Context
		runs, running[name] = context.WithCancel(ctx)
		t.endpoints[name] = e
		group.Go(func() { e.run(runs, t.forwarder.announceSilence) })
	}
	for name, stop := range running {
		if !configured[name] {
			stop()
			delete(running, name)
			delete(t.endpoints, name)
		}
	}
}

// watch has the Incidents that change forwarded.
func (t *term) watch(objects cache.Informers) error {
	ctx := context.Background()
	incidents, err := objects.GetInformer(ctx, &v1alpha1.Incident{})
	if err != nil {
		return fmt.Errorf("getting the informer of Incidents: %w", err)
	}
	integrations, err := objects.GetInformer(ctx, &v1alpha1.WebhookIntegration{})
	if err != nil {
		return fmt.Errorf("getting the informer of WebhookIntegrations: %w", err)
	}
	for informer, handler := range map[cache.Informer]toolscache.ResourceEventHandler{
		incidents: onChange(t.incidentChanged), integrations: onChange(t.integrationChanged),
	} {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("adding an event handler: %w", err)
		}
		t.synced = append(t.synced, registration.HasSynced)
	}
	return nil
}

// onChange returns a handler that calls changed with an object before and after a change; before is nil if it is new, after
// if it was deleted. initial says that it existed when the watch began.
func onChange[T client.Object](changed func(before, after T, initial bool)) toolscache.ResourceEventHandler {
	var none T
	feed := informers.Handler(func(T, bool) {}, func(deleted T) { changed(deleted, none, false) })
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			if added, ok := object.(T); ok {
				changed(none, added, initial)
			}
		},
		UpdateFunc: func(old, object any) {
			before, ok := old.(T)
			after, has := object.(T)
			if ok && has {
				changed(before, after, false)
			}
		},
		DeleteFunc: feed.OnDelete,
	}
}

func (t *term) incidentChanged(before, after *v1alpha1.Incident, initial bool) {
	if after == nil { // it is Resolved, or deleted
		if t.index.gone(before, time.Now()) {
			t.notify(keyOf(before), time.Time{})
		}
		return
	}
	t.index.set(after, time.Now())
	var labels []string
	if config := t.forwarder.current(); config != nil {
		labels = config.AlertLabels
	}
	received, changes := transition(before, after, labels)
	if !initial && changes { // else the sweep comes to it
		t.notify(keyOf(after), received)
	}
}

// resolved takes in an Incident that is Resolved.
func (t *term) resolved(incident *v1alpha1.Incident) {
	now := time.Now()
	window, ended := minEndedWindow, incident.Status.ResolvedTime
	if config := t.forwarder.current(); config != nil {
		window = config.endedWindow()
	}
	if news := t.index.set(incident, now); !news || ended == nil || now.Sub(ended.Time) > window {
		return
	}
	t.keepWhole(wholeKey{keyOf(incident), incident.ResourceVersion}, incident)
	t.notify(keyOf(incident), ended.Time)
}

// complete implements store.
func (t *term) complete() bool { return t.swept.Load() }

// integrationChanged has the Incidents of an integration forwarded anew if its change affects them.
func (t *term) integrationChanged(before, after *v1alpha1.WebhookIntegration, initial bool) {
	if initial || after == nil || before != nil && before.Spec.Forward == after.Spec.Forward &&
		before.Spec.Preset == after.Spec.Preset && maps.Equal(before.Labels, after.Labels) {
		return
	}
	for _, key := range t.index.of(after.Namespace, after.Name) {
		t.notify(key, time.Time{})
	}
}

// notify puts an Incident in the queue of every sender.
func (t *term) notify(key incidentKey, received time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.endpoints {
		e.notify(key, received)
	}
}

func keyOf(incident *v1alpha1.Incident) incidentKey {
	return incidentKey{incident.Namespace, incident.Name}
}

// transition reports whether an Incident changed in a way that Alertmanager has to know at once; counts and texts can wait
// for the sweep. received is the time at which the alert that caused a transition was received; zero for other changes.
func transition(before, after *v1alpha1.Incident, labels []string) (received time.Time, changed bool) {
	if before == nil {
		return time.Time{}, true
	}
	was, is := &before.Status, &after.Status
	if n := len(is.Timeline); n > 0 {
		newest := is.Timeline[n-1]
		if m := len(was.Timeline); m == 0 || !sameTransition(was.Timeline[m-1], newest) {
			return newest.Time.Time, true
		}
	}
	changed = was.State != is.State || was.Alert.Severity != is.Alert.Severity || was.Alert.Type != is.Alert.Type ||
		slices.ContainsFunc(labels, func(name string) bool {
			return was.Alert.Labels[name] != is.Alert.Labels[name]
		})
	return time.Time{}, changed
}

func sameTransition(a, b v1alpha1.Transition) bool {
	return a.Type == b.Type && a.Message == b.Message && a.Time.Equal(b.Time.Time)
}

// incident implements store. The cache lacks Resolved Incidents, or shows them as they were: those that the index knows are read.
func (t *term) incident(
	ctx context.Context, key incidentKey,
) (*v1alpha1.Incident, *v1alpha1.WebhookIntegration, error) {
	incident, integration := &v1alpha1.Incident{}, &v1alpha1.WebhookIntegration{}
	name := types.NamespacedName{Namespace: key.namespace, Name: key.name}
	err := t.reader.Get(ctx, name, incident, client.UnsafeDisableDeepCopy)
	version, known := t.index.version(key)
	switch {
	case apierrors.IsNotFound(err) && !known:
		return nil, nil, nil
	case apierrors.IsNotFound(err), err == nil && known && fold.NewerVersion(version, incident.ResourceVersion):
		incident, err = t.whole(ctx, wholeKey{key, version})
	}
	if err != nil || incident == nil {
		return nil, nil, err
	}
	name.Name = incident.Spec.IntegrationName
	if err := t.reader.Get(ctx, name, integration, client.UnsafeDisableDeepCopy); err != nil {
		return incident, nil, client.IgnoreNotFound(err)
	}
	return incident, integration, nil
}

// wholeKey is a version of an Incident.
type wholeKey struct {
	incidentKey
	version string
}

// whole returns an Incident that the index knows and the cache lacks, nil if there is none. It keeps those that it has read for a
// while, since a Resolved Incident is posted again and again.
func (t *term) whole(ctx context.Context, known wholeKey) (*v1alpha1.Incident, error) {
	key := known.incidentKey
	if kept, ok := t.wholes.Get(known); ok {
		if incident, ok := kept.(*v1alpha1.Incident); ok {
			return incident, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout) // or an API server that hangs ends the leases of all alerts
	defer cancel()
	incident := &v1alpha1.Incident{}
	switch err := t.live.Get(ctx, types.NamespacedName{Namespace: key.namespace, Name: key.name}, incident); {
	case apierrors.IsNotFound(err):
		incident = nil
		t.index.missing(key)
	case err != nil:
		return nil, err
	}
	return t.keepWhole(known, incident), nil
}

// keepWhole keeps an Incident without what no alert in Alertmanager has.
func (t *term) keepWhole(key wholeKey, incident *v1alpha1.Incident) *v1alpha1.Incident {
	if incident != nil {
		kept := *incident
		alert := &kept.Status.Alert
		alert.Annotations, alert.Values, alert.Custom, kept.Status.UnarchivedEpisodes = nil, nil, nil, nil
		alert.Description = shortDescription(alert.Description)
		kept.ManagedFields, kept.Annotations, kept.Status.Ledger = nil, nil, v1alpha1.Ledger{}
		incident = &kept
	}
	t.wholes.Add(key, incident, wholeTime)
	return incident
}

// active implements store.
func (t *term) active(since time.Time) []incidentKey { return t.index.active(since) }

// silenced implements store.
func (t *term) silenced() []incidentKey { return t.index.silenced() }

// installation implements store.
func (t *term) installation(ctx context.Context) (string, error) {
	return t.forwarder.installation(ctx)
}
