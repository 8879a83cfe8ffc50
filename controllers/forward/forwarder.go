// Package forward posts Incidents to Alertmanager, which notifies people. The leader does, for as long as its term lasts.
//
// # How an Incident becomes a post
//
//  1. term.observe (below): the folds pass each Incident that they write, or read from the API server, to Forwarder.Observe.
//     An end is queued for each poster, and so is a change of an open one if people have to know it at once. What another
//     process wrote comes from the cache: term.incidentChanged and, when an Incident leaves it, term.incidentGone. A new leader
//     learns of earlier ends from its first sweep, which calls Forwarder.Observe, too. What was observed before is no news.
//  2. poster.run (poster.go): a poster, one for each address of an Alertmanager, takes the Incidents of its next request from
//     its schedule (schedule.go): first those of which it was told, then those of its round, which has all open ones once a
//     minute, or more often if alerts expire earlier. Ended ones come after the round (takeOpen, takeEnded), since open ones
//     expire and ends do not.
//  3. poster.prepare (poster.go) reads each of them, has package alerts, which is pure, decide with which labels Alertmanager is
//     to know it, adds what was posted before and must end, and makes the alerts.
//  4. poster.post posts them in one request. If Alertmanager accepts only some, it finds out which.
//  5. The record of the poster (record.go) has what was accepted and rejected, by Incident. The next round, the status of the
//     Incident (refolder, record.go) and the condition of its integration (condition.go) depend on it.
//
// A term has an endpoint for each Alertmanager of the configuration (package config), which keeps the posters, and a silencer
// that compares the silences there with those that are wanted (package silences, pure). Package alertmanager is the client.
//
// # Invariants
//
//   - Level-triggered: a poster posts what is true now, again and again: every open Incident as an alert that ends some minutes
//     from now, and every Resolved one, for some time, as an alert that has ended. Nothing is stored, so the next round repairs
//     a restart, a failover, a lost request and an Alertmanager that forgot everything.
//   - Identity: while an Incident is open, one set of its labels fires. A request that starts another set ends the former one.
//   - Isolation: each poster has its own queues, connection, record and backoff, so an Alertmanager that is down, slow or
//     hanging delays no other. Namespaces take turns. An alert that is not accepted keeps no other from being posted.
//   - Time: Alertmanager compares the end of an alert with its own clock. A leader whose clock is an hour behind would end every
//     alert at once, so all times are those of the API server, see replica.IngestHealth, and of Alertmanager where its clock
//     differs, see skew.
//   - Lease: nothing is posted after that of the leader has run out.
package forward

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
	"github.com/tocsin-dev/tocsin/controllers/forward/config"
	"github.com/tocsin-dev/tocsin/internal/informers"
)

// clock returns the time by the API server's clock. It is not ok while nothing may be posted.
type clock func() (now time.Time, ok bool)

// Forwarder forwards Incidents while its replica leads. There is one for each process.
type Forwarder struct {
	Options
	clock        Clock
	installation Installation
	log          logr.Logger

	file        atomic.Pointer[file]
	term        atomic.Pointer[term]                       // nil if this replica does not lead
	requestFold atomic.Pointer[func(types.NamespacedName)] // of the latest RequestFolds; nil while nothing folds
}

// Mutings knows when the Incidents of integrations are muted.
type Mutings interface {
	// Of returns what mutes the Incidents of an integration, perhaps nothing. The integration may be nil.
	Of(integration *v1alpha1.WebhookIntegration) fold.Muting

	// Describe has the condition Forwarded of an integration say what mutes some of its Incidents.
	Describe(condition *metav1.Condition, integration *v1alpha1.WebhookIntegration, now time.Time)
}

// file is what was read of the configuration file. It never changes.
type file struct {
	data   []byte         // what was read last
	err    error          // why that is invalid
	config *config.Config // the last valid content; empty if there was none
}

// Clock is a *replica.IngestHealth outside of tests.
type Clock interface {
	// Now returns the time by the API server's clock, by which expiries are computed: a leader's own clock may be wrong. It is not
	// ok while that time is unknown.
	Now() (now time.Time, ok bool)
}

// Installation is this Tocsin.
type Installation interface {
	// ID returns its identity, without spaces: several may share an Alertmanager, and none may end the silences of another.
	ID(ctx context.Context) (string, error)
}

// Lease is that of the leader. It is a *leader.Campaign outside of tests.
type Lease interface {
	// Holds reports whether the lease, as last seen, has not run out: nothing is posted after that.
	Holds() bool
}

// term is the forwarding of one leader's term: an endpoint for each entry of the configuration. All memory begins anew.
type term struct {
	forwarder *Forwarder
	lease     Lease
	resolver  alertmanager.Resolver
	incidents *incidents
	synced    []toolscache.InformerSynced // whether incidents has the existing objects
	endpoints *group[*endpoint]           // by the target's name
	refolder  *refolder
}

// New returns a Forwarder with the configuration in the options' file.
func New(o Options, clock Clock, installation Installation, log logr.Logger) *Forwarder {
	f := &Forwarder{Options: o, clock: clock, installation: installation, log: log}
	if f.Dialer == nil {
		f.Dialer = &net.Dialer{Timeout: alertmanager.RequestTimeout}
	}
	f.file.Store(&file{config: config.Empty()})
	return f
}

// Start implements manager.Runnable: it reads the file now and whenever it changes. Each replica keeps its last valid
// content, so that a failover does not end the forwarding while the file is invalid.
func (f *Forwarder) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(context.Context) { f.load() }, reloadInterval)
	return nil
}

// load reads the file. An invalid file does not end the process: it would neither store nor fold alerts any more.
func (f *Forwarder) load() {
	last := f.file.Load()
	data, err := os.ReadFile(f.path)
	isNew := !bytes.Equal(data, last.data)
	if err == nil && !isNew && last.err == nil && !last.config.IsEmpty() {
		return
	}
	var read *config.Config
	if err == nil {
		read, err = config.Parse(data, filepath.Dir(f.path), f.pageURL)
	}
	if err != nil {
		if isNew || last.err == nil {
			f.log.Error(err, "Alertmanager configuration is invalid", "file", f.path, "lastValidInUse", !last.config.IsEmpty())
		}
		f.file.Store(&file{data: data, err: err, config: last.config})
		configValid.WithLabelValues().Set(0)
		return
	}
	f.log.Info("Loaded Alertmanager configuration", "file", f.path, "alertmanagers", len(read.Alertmanagers))
	f.file.Store(&file{data: data, config: read})
	configValid.WithLabelValues().Set(1)
}

// current returns the configuration in use.
func (f *Forwarder) current() *config.Config { return f.file.Load().config }

// apiTime returns the time by the API server's clock, and that of the process while the former is not known.
func (f *Forwarder) apiTime() time.Time {
	if now, ok := f.clock.Now(); ok {
		return now
	}
	return time.Now()
}

// Observe implements incident.Forwarder and sweep.Listener.
func (f *Forwarder) Observe(incident *v1alpha1.Incident) {
	if t := f.term.Load(); t != nil {
		t.observe(incident)
	}
}

// RequestFolds implements incident.Forwarder.
func (f *Forwarder) RequestFolds(ctx context.Context, request func(incident types.NamespacedName)) {
	f.requestFold.Store(&request)
	<-ctx.Done()
	f.requestFold.CompareAndSwap(&request, nil)
}

// refold has an Incident folded: what is known about its forwarding or its silences has changed. It reports false while nothing
// folds.
func (f *Forwarder) refold(incident types.NamespacedName) bool {
	request := f.requestFold.Load()
	if request != nil {
		(*request)(incident)
	}
	return request != nil
}

// Lead adds the forwarding to the manager of a leader's term, with which it ends.
func (f *Forwarder) Lead(mgr ctrl.Manager, lease Lease) error {
	t := newTerm(f, lease, mgr.GetAPIReader(), net.DefaultResolver)
	if err := t.watch(mgr.GetCache()); err != nil {
		return err
	}
	if err := mgr.Add(t); err != nil {
		return fmt.Errorf("adding the forwarding of Incidents: %w", err)
	}
	f.term.Store(t)
	return nil
}

func newTerm(f *Forwarder, lease Lease, api client.Reader, resolver alertmanager.Resolver) *term {
	t := &term{forwarder: f, lease: lease, resolver: resolver, endpoints: newGroup[*endpoint]()}
	t.incidents = newIncidents(api, func() *alerts.Settings { return &f.current().Settings })
	t.refolder = newRefolder(t)
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
	defer t.forwarder.term.CompareAndSwap(t, nil) // which frees its memory of all open Incidents
	defer t.endpoints.running.Wait()
	toolscache.WaitForCacheSync(ctx.Done(), t.synced...)
	t.endpoints.running.Go(func() { t.refolder.run(ctx) })
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
	t.synced = []toolscache.InformerSynced{incidents, integrations}
	return nil
}

func (t *term) incidentChanged(incident *v1alpha1.Incident, initial bool) {
	before, news := t.incidents.put(incident, time.Time{})
	if news && !initial {
		t.enqueueIfUrgent(before.unresolved, incident)
	}
}

// observe takes in an Incident as the API server has it, which the cache may not have shown yet.
func (t *term) observe(incident *v1alpha1.Incident) {
	if incident.Status.State == v1alpha1.IncidentResolved {
		t.noteResolved(incident)
	} else if before, news := t.incidents.putUncached(incident); news {
		t.enqueueIfUrgent(before.unresolved, incident)
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

// enqueueIfUrgent has an Incident that is not Resolved posted before the next round, if that is needed.
func (t *term) enqueueIfUrgent(before, after *v1alpha1.Incident) {
	received, urgent := alerts.Urgent(before, after, t.forwarder.current().AlertLabels)
	if before == nil && t.forwarder.apiTime().Sub(received) > lostAfter {
		received = time.Time{} // it is not new, only new to this leader: no latency
	}
	if urgent {
		t.enqueue(client.ObjectKeyFromObject(after), received)
	}
}

// incidentGone takes in that an Incident is Resolved, or deleted.
func (t *term) incidentGone(incident *v1alpha1.Incident) {
	if t.incidents.noteGone(incident, t.forwarder.apiTime()) {
		t.enqueue(client.ObjectKeyFromObject(incident), time.Time{})
	}
}

// noteResolved takes in an Incident that is Resolved.
func (t *term) noteResolved(incident *v1alpha1.Incident) {
	now, _ := t.forwarder.clock.Now()
	ended, window := incident.Status.ResolvedTime, t.forwarder.current().EndedWindow()
	_, news := t.incidents.put(incident, now.Add(-window))
	if !news || ended == nil || now.Sub(fold.ForwardedEnd(&incident.Status)) > window {
		return
	}
	t.incidents.keep(incident)
	t.enqueue(client.ObjectKeyFromObject(incident), ended.Time)
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
		t.enqueue(incident, time.Time{})
	}
}

func (t *term) integrationGone(integration *v1alpha1.WebhookIntegration) {
	t.incidents.replaceIntegration(client.ObjectKeyFromObject(integration), nil)
}

// enqueue puts an Incident in the queue of every poster.
func (t *term) enqueue(key types.NamespacedName, received time.Time) {
	for _, e := range t.endpoints.all() {
		for _, p := range e.posters.all() {
			p.schedule.changed.add(key, received)
		}
	}
}
