package forward

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
	"github.com/tocsin-dev/tocsin/controllers/forward/config"
	"github.com/tocsin-dev/tocsin/internal/informers"
)

// term is the forwarding of one leader's term: an endpoint for each entry of the configuration. All memory begins anew.
type term struct {
	forwarder *Forwarder
	lease     Lease
	resolver  alertmanager.Resolver
	incidents *incidents
	synced    []toolscache.InformerSynced // whether incidents has the existing objects
	endpoints *group[*endpoint]           // by the target's name
	reporter  *reporter
}

func newTerm(f *Forwarder, lease Lease, api client.Reader, resolver alertmanager.Resolver) *term {
	t := &term{forwarder: f, lease: lease, resolver: resolver, endpoints: newGroup[*endpoint]()}
	t.incidents = newIncidents(api, func() *alerts.Settings { return &f.current().Settings })
	t.reporter = newReporter(t)
	return t
}

// clock is not ok while the time is unknown, nor when the lease has run out: a leader that was frozen may have a successor, which
// knows what has ended meanwhile.
func (t *term) clock() (now time.Time, ok bool) {
	now, ok = t.forwarder.clock.Now()
	return now, ok && t.lease.Holds()
}

// Start implements manager.Runnable: it keeps the endpoints of the newest configuration until ctx ends.
func (t *term) Start(ctx context.Context) error {
	defer t.forwarder.term.CompareAndSwap(t, nil) // it knows all open Incidents
	defer t.endpoints.running.Wait()
	toolscache.WaitForCacheSync(ctx.Done(), t.synced...)
	t.endpoints.running.Go(func() { t.reporter.run(ctx) })
	t.endpoints.running.Go(func() { t.readLost(ctx) })
	wait.UntilWithContext(ctx, t.apply, reloadInterval)
	return nil
}

// apply starts, configures and stops endpoints.
func (t *term) apply(ctx context.Context) {
	targets := map[string]*config.Target{}
	for _, target := range t.forwarder.current().Alertmanagers {
		targets[target.Name()] = target
	}
	t.endpoints.keep(ctx, slices.Collect(maps.Keys(targets)), func(name string) *endpoint { return newEndpoint(t, targets[name]) })
	for _, e := range t.endpoints.all() {
		e.configure(targets[e.name])
	}
}

// watch follows the Incidents and the integrations.
func (t *term) watch(objects cache.Informers) error {
	incidents, err := informers.Feed(objects, &v1alpha1.Incident{}, t.incidentChanged, t.incidentGone)
	if err != nil {
		return err
	}
	integrations, err := informers.Feed(objects, &v1alpha1.WebhookIntegration{},
		t.integrationChanged, t.integrationGone)
	if err != nil {
		return err
	}
	t.synced = []toolscache.InformerSynced{incidents.HasSynced, integrations.HasSynced}
	return nil
}

func (t *term) incidentChanged(incident *v1alpha1.Incident, initial bool) {
	before, news := t.incidents.set(incident, time.Time{})
	if news && !initial {
		t.notifyIfUrgent(before.content, incident)
	}
}

// observe takes in an Incident as the API server has it, which the cache may not have shown yet.
func (t *term) observe(incident *v1alpha1.Incident) {
	if incident.Status.State == v1alpha1.IncidentResolved {
		t.resolved(incident)
	} else if before, news := t.incidents.setUnshown(incident); news {
		t.notifyIfUrgent(before.content, incident)
	}
}

// readLost reads the Incidents that the cache should have shown, until ctx ends.
func (t *term) readLost(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		failures := 0
		for _, key := range t.incidents.lost() {
			known, _, _ := t.incidents.get(key)
			incident, err := t.incidents.readLive(ctx, version{key, known.version})
			if incident != nil {
				t.observe(incident)
			}
			if err != nil {
				failures++
			}
			if failures == maxLostFailures {
				return
			}
			sleep(ctx, lostInterval, nil)
		}
	}, lostAfter/2)
}

// notifyIfUrgent has an Incident that is not Resolved posted, if that cannot wait for the next round.
func (t *term) notifyIfUrgent(before, after *v1alpha1.Incident) {
	received, urgent := alerts.Urgent(before, after, t.forwarder.current().AlertLabels)
	if before == nil && t.forwarder.apiTime().Sub(received) > lostAfter {
		received = time.Time{} // it was only not known
	}
	if urgent {
		t.notify(client.ObjectKeyFromObject(after), received)
	}
}

// incidentGone takes in that an Incident is Resolved, or deleted.
func (t *term) incidentGone(incident *v1alpha1.Incident) {
	if t.incidents.gone(incident, t.forwarder.apiTime()) {
		t.notify(client.ObjectKeyFromObject(incident), time.Time{})
	}
}

// resolved takes in an Incident that is Resolved.
func (t *term) resolved(incident *v1alpha1.Incident) {
	now, _ := t.forwarder.clock.Now()
	ended, window := incident.Status.ResolvedTime, t.forwarder.current().EndedWindow()
	_, news := t.incidents.set(incident, now.Add(-window))
	if !news || ended == nil || now.Sub(fold.ForwardedEnd(&incident.Status)) > window {
		return
	}
	t.incidents.keep(incident)
	t.notify(client.ObjectKeyFromObject(incident), ended.Time)
}

// integrationChanged has the Incidents of an integration forwarded anew if its change affects them.
func (t *term) integrationChanged(integration *v1alpha1.WebhookIntegration, initial bool) {
	key := client.ObjectKeyFromObject(integration)
	before := t.incidents.replaceIntegration(key, integration)
	if initial || before != nil && before.Spec.Forward == integration.Spec.Forward &&
		before.Spec.Preset == integration.Spec.Preset && maps.Equal(before.Labels, integration.Labels) {
		return
	}
	for _, incident := range t.incidents.of(key) {
		t.notify(incident, time.Time{})
	}
}

func (t *term) integrationGone(integration *v1alpha1.WebhookIntegration) {
	t.incidents.replaceIntegration(client.ObjectKeyFromObject(integration), nil)
}

// notify puts an Incident in the queue of every poster.
func (t *term) notify(key types.NamespacedName, received time.Time) {
	for _, e := range t.endpoints.all() {
		for _, p := range e.posters.all() {
			p.schedule.changed.add(key, received)
		}
	}
}
