package forward

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	expirecache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/informers"
)

// clock returns the time by the API server's clock. It is not ok while nothing may be posted.
type clock func() (now time.Time, ok bool)

// term is the forwarding of one leader's term: an endpoint for each entry of the configuration. All memory begins anew.
type term struct {
	forwarder *Forwarder
	leads     func() bool   // see Lead
	live      client.Reader // the API server
	resolver  resolver
	index     *index
	wholes    *expirecache.LRUExpireCache // of *v1alpha1.Incident by wholeKey
	reads     flowcontrol.RateLimiter     // of Incidents that neither the cache nor wholes has
	synced    []toolscache.InformerSynced // whether the index has the existing objects
	swept     atomic.Bool                 // whether it has the Resolved Incidents
	endpoints *group[*endpoint]           // by target.name

	unreported *queue         // the Incidents whose status may be behind, see reportAll
	untold     map[untold]int // what the metric says
}

func newTerm(f *Forwarder, leads func() bool, live client.Reader, resolver resolver) *term {
	return &term{
		forwarder: f, leads: leads, live: live, resolver: resolver, index: newIndex(),
		wholes: expirecache.NewLRUExpireCache(maxWholes), reads: flowcontrol.NewTokenBucketRateLimiter(readRate, readRate),
		endpoints: newGroup[*endpoint](), unreported: newQueue(),
	}
}

// clock is not ok while the time is unknown, nor when the lease has run out: a leader that was frozen may have a successor, which
// knows what has ended meanwhile.
func (t *term) clock() (now time.Time, ok bool) {
	now, ok = t.forwarder.clock()
	return now, ok && t.leads()
}

// Start implements manager.Runnable: it keeps the endpoints of the newest configuration until ctx ends.
func (t *term) Start(ctx context.Context) error {
	defer t.forwarder.term.CompareAndSwap(t, nil) // it knows all open Incidents
	defer t.endpoints.running.Wait()
	toolscache.WaitForCacheSync(ctx.Done(), t.synced...)
	t.endpoints.running.Go(func() { t.reportAll(ctx) })
	wait.UntilWithContext(ctx, t.apply, reloadInterval)
	return nil
}

// apply starts, configures and stops endpoints.
func (t *term) apply(ctx context.Context) {
	config, targets := t.forwarder.current(), map[string]*target{}
	for i := range config.Alertmanagers {
		target := &config.Alertmanagers[i]
		targets[target.name()] = target
	}
	t.endpoints.keep(ctx, slices.Collect(maps.Keys(targets)), func(name string) *endpoint { return newEndpoint(t, targets[name]) })
	for _, e := range t.endpoints.all() {
		e.configure(targets[e.name])
	}
}

// watch forwards each Incident that changes.
func (t *term) watch(objects cache.Informers) error {
	incidents, err := informers.Feed(context.Background(), objects, &v1alpha1.Incident{}, t.incidentChanged, t.incidentGone)
	if err != nil {
		return err
	}
	integrations, err := informers.Feed(context.Background(), objects, &v1alpha1.WebhookIntegration{},
		t.integrationChanged, t.integrationGone)
	t.synced = []toolscache.InformerSynced{incidents, integrations}
	return err
}

func (t *term) incidentChanged(incident *v1alpha1.Incident, initial bool) {
	before, _ := t.index.set(incident, time.Time{})
	received, changes := transition(before.open, incident, t.forwarder.current().AlertLabels)
	if !initial && changes { // else the next round comes to it
		t.notify(keyOf(incident), received)
	}
}

// incidentGone takes in that an Incident is Resolved, or deleted.
func (t *term) incidentGone(incident *v1alpha1.Incident) {
	if t.index.gone(incident, time.Now()) {
		t.notify(keyOf(incident), time.Time{})
	}
}

// resolved takes in an Incident that is Resolved.
func (t *term) resolved(incident *v1alpha1.Incident) {
	now, _ := t.forwarder.clock()
	ended, window := incident.Status.ResolvedTime, t.forwarder.current().endedWindow()
	if _, news := t.index.set(incident, now.Add(-window)); !news || ended == nil || now.Sub(ended.Time) > window {
		return
	}
	t.keepWhole(wholeKey{keyOf(incident), incident.ResourceVersion}, incident)
	t.notify(keyOf(incident), ended.Time)
}

// integrationChanged has the Incidents of an integration forwarded anew if its change affects them.
func (t *term) integrationChanged(integration *v1alpha1.WebhookIntegration, initial bool) {
	key := incidentKey{integration.Namespace, integration.Name}
	before := t.index.replaceIntegration(key, integration)
	if initial || before != nil && before.Spec.Forward == integration.Spec.Forward &&
		before.Spec.Preset == integration.Spec.Preset && maps.Equal(before.Labels, integration.Labels) {
		return
	}
	for _, incident := range t.index.of(key) {
		t.notify(incident, time.Time{})
	}
}

func (t *term) integrationGone(integration *v1alpha1.WebhookIntegration) {
	t.index.replaceIntegration(incidentKey{integration.Namespace, integration.Name}, nil)
}

// notify puts an Incident in the queue of every sender.
func (t *term) notify(key incidentKey, received time.Time) {
	for _, e := range t.endpoints.all() {
		for _, s := range e.senders.all() {
			s.queue.add(key, received)
		}
	}
}

// transition reports whether an Incident changed in a way that Alertmanager has to know at once; counts and texts can wait
// for the next round. before is nil if it was not open. received is the time at which the alert that caused a transition was
// received; zero for other changes.
func transition(before, after *v1alpha1.Incident, labels []string) (received time.Time, changed bool) {
	if before == nil {
		return time.Time{}, true
	}
	was, is := &before.Status, &after.Status
	if n := len(is.Timeline); n > 0 {
		newest := is.Timeline[n-1]
		m, isOwn := len(was.Timeline), newest.Type == v1alpha1.TransitionForwarding
		if !isOwn && (m == 0 || !sameTransition(was.Timeline[m-1], newest)) {
			return newest.Time.Time, true
		}
	}
	changed = was.State != is.State || (was.Mute == nil) != (is.Mute == nil) ||
		was.Alert.Severity != is.Alert.Severity || was.Alert.Type != is.Alert.Type ||
		slices.ContainsFunc(labels, func(name string) bool { return was.Alert.Labels[name] != is.Alert.Labels[name] })
	return time.Time{}, changed
}

func sameTransition(a, b v1alpha1.Transition) bool {
	return a.Type == b.Type && a.Message == b.Message && a.Time.Equal(b.Time.Time)
}

// incident returns an Incident and its integration, each nil if it does not exist. An Incident that was resolved long ago is nil
// as well. The objects must not be modified.
func (t *term) incident(
	ctx context.Context, key incidentKey,
) (incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, err error) {
	known, integration, ok := t.index.get(key)
	if incident = known.open; ok && incident == nil {
		incident, err = t.whole(ctx, wholeKey{key, known.version})
	}
	if err != nil || incident == nil {
		return nil, nil, err
	}
	return incident, integration, nil
}

// wholeKey is a version of an Incident.
type wholeKey struct {
	incidentKey
	version string
}

// isAtHand reports whether an Incident can be had without a read, or may be read now.
func (t *term) isAtHand(key incidentKey) bool {
	known, _, ok := t.index.get(key)
	if !ok || known.open != nil {
		return true
	}
	_, ok = t.wholes.Get(wholeKey{key, known.version})
	return ok || t.reads.TryAccept()
}

// whole returns an Incident that the index knows and the cache lacks, nil if there is none. It keeps those that it has read for a
// while, since a Resolved Incident is posted again and again.
func (t *term) whole(ctx context.Context, known wholeKey) (*v1alpha1.Incident, error) {
	if kept, ok := t.wholes.Get(known); ok {
		if incident, ok := kept.(*v1alpha1.Incident); ok {
			return incident, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout) // or an API server that hangs lets all alerts expire
	defer cancel()
	incident := &v1alpha1.Incident{}
	err := t.live.Get(ctx, client.ObjectKey{Namespace: known.namespace, Name: known.name}, incident)
	if err != nil {
		if apierrors.IsNotFound(err) {
			t.index.missing(known.incidentKey, known.version)
		}
		return nil, client.IgnoreNotFound(err)
	}
	return t.keepWhole(known, incident), nil
}

// keepWhole keeps an Incident without what no alert in Alertmanager has.
func (t *term) keepWhole(key wholeKey, incident *v1alpha1.Incident) *v1alpha1.Incident {
	kept := *incident
	alert, config := &kept.Status.Alert, t.forwarder.current()
	annotations, labels := v1alpha1.Texts{}, v1alpha1.Texts{}
	for _, name := range config.AlertAnnotations {
		if text, ok := alert.Annotations[name]; ok {
			annotations[name] = annotationText(text)
		}
	}
	for _, name := range append(slices.Clone(config.AlertLabels), labelHops) {
		if text, ok := alert.Labels[name]; ok {
			labels[name] = text
		}
	}
	alert.Annotations, alert.Labels, alert.Values, alert.Custom, kept.Status.UnarchivedEpisodes = annotations, labels, nil, nil, nil
	alert.Description = shortDescription(alert.Description)
	kept.ManagedFields, kept.Annotations, kept.Status.Ledger = nil, nil, v1alpha1.Ledger{}
	t.wholes.Add(key, &kept, wholeTime)
	return &kept
}
