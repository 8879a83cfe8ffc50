package forward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
	"github.com/tocsin-dev/tocsin/controllers/forward/config"
	"github.com/tocsin-dev/tocsin/controllers/forward/silences"
	mutes "github.com/tocsin-dev/tocsin/controllers/maintenance"
	"github.com/tocsin-dev/tocsin/internal/maintenance"
)

// clockFunc is a Clock that is a function.
type clockFunc func() (time.Time, bool)

func (f clockFunc) Now() (now time.Time, ok bool) { return f() }

// realTime is the clock of a replica whose clock is right.
func realTime() (time.Time, bool) { return time.Now(), true }

// noon is a time.
var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// targetOf returns the target of a configuration's first entry.
func targetOf(c *config.Config) *config.Target {
	c.Expiry = 15 * time.Minute
	if len(c.Alertmanagers) == 0 {
		c.Alertmanagers = []*config.Target{{
			Target: alerts.Target{Settings: &c.Settings, Integrations: labels.Everything()},
			Server: alertmanager.Server{URL: &url.URL{Scheme: "http", Host: "alertmanager:9093"}},
		}}
	}
	return c.Alertmanagers[0]
}

// cluster has the Incidents that the fold wrote, and a leader's term that knows them. It is the term's API server.
type cluster struct {
	client.Reader
	now     func() time.Time
	clock   clock
	mu      sync.Mutex
	objects map[types.NamespacedName]*v1alpha1.Incident
	folded  int
	id      string // of the installation
	term    *term
	windows *maintenance.Windows
	spec    v1alpha1.WebhookIntegrationSpec

	unreadable types.NamespacedName
}

func newCluster() *cluster {
	c := &cluster{now: time.Now, clock: realTime, objects: map[types.NamespacedName]*v1alpha1.Incident{}, id: "here",
		windows: maintenance.NewWindows()}
	c.term = c.newTerm()
	return c
}

// ID implements Installation.
func (c *cluster) ID(context.Context) (string, error) { return c.id, nil }

// held is a Lease that does not run out.
type held struct{}

func (held) Holds() bool { return true }

// newTerm returns a term that knows nothing yet.
func (c *cluster) newTerm() *term {
	t := newTerm(New(Options{}, clockFunc(func() (time.Time, bool) { return c.clock() }), c, logr.Discard()), held{}, c, nil)
	t.forwarder.Mutings = &mutes.Muting{Windows: c.windows}
	return t
}

// Get implements client.Reader.
func (c *cluster) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key.Name == c.unreadable.Name && key.Name != "" {
		return errors.New("unreadable")
	}
	stored := c.objects[key]
	if incident, ok := object.(*v1alpha1.Incident); ok && stored != nil {
		stored.DeepCopyInto(incident)
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// namespace and integration are those of all Incidents.
const namespace, integration = "shop", "mon"

// integrate creates or replaces the integration.
func (c *cluster) integrate(spec v1alpha1.WebhookIntegrationSpec) {
	c.mu.Lock()
	c.folded++
	c.spec = spec
	meta := metav1.ObjectMeta{Namespace: namespace, Name: integration, Generation: int64(c.folded)}
	c.mu.Unlock()
	c.term.integrationChanged(&v1alpha1.WebhookIntegration{ObjectMeta: meta, Spec: spec}, false)
}

// replaceWindows replaces the windows by those of the integration.
func (c *cluster) replaceWindows(windows ...v1alpha1.MaintenanceWindow) {
	for _, former := range c.windows.In(namespace) {
		c.windows.Remove(former.MaintenanceWindow)
	}
	for i := range windows {
		windows[i].Spec.Integrations = &v1alpha1.IntegrationSelection{Names: []string{integration}}
		c.windows.Set(&windows[i])
	}
}

// refold folds every Incident without an alert, and returns those that changed, each as it was before.
func (c *cluster) refold() (before []*v1alpha1.Incident) {
	c.mu.Lock()
	objects := maps.Clone(c.objects)
	c.mu.Unlock()
	for key, incident := range objects {
		plan := fold.Decide(c.input(key.Name, incident))
		if plan.Write {
			before = append(before, incident)
			c.edit(key, func(status *v1alpha1.IncidentStatus) { *status = plan.Status })
		}
	}
	return before
}

// input returns the input of a fold now.
func (c *cluster) input(name string, before *v1alpha1.Incident, events ...*v1alpha1.AlertEvent) fold.Input {
	return fold.Input{
		Name: name, Incident: before, Events: events, Listing: fold.AllListed{},
		Policy: fold.Policy{
			Retention: time.Hour, Muting: c.windows.In(namespace), ForwardAfter: c.spec.ForwardAfter, Flapping: c.spec.Flapping,
			Rules: []fold.Rule{silences.Rule{}},
		}, Now: c.now(),
	}
}

// disintegrate deletes the integration.
func (c *cluster) disintegrate() {
	c.term.integrationGone(&v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: integration}})
}

// fold folds an alert that is received now, and returns the Incident before and after it.
func (c *cluster) fold(alert v1alpha1.Alert) (before, after *v1alpha1.Incident) {
	name := v1alpha1.IncidentName(integration, alert.DedupKey)
	key := types.NamespacedName{Namespace: namespace, Name: name}
	c.mu.Lock()
	before = c.objects[key]
	c.folded++
	c.mu.Unlock()
	id := fmt.Sprint("alert-", c.folded)
	event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: id, UID: types.UID(id), ResourceVersion: fmt.Sprint(c.folded), CreationTimestamp: metav1.NewTime(c.now()),
	}}
	event.Spec = v1alpha1.AlertEventSpec{IntegrationName: integration, ReceivedTime: v1alpha1.NewTimestamp(c.now())}
	event.Alerts = []v1alpha1.Alert{alert}
	after = c.decide(name, before, event)
	c.store(after)
	return before, after
}

// store stores an Incident, and lets the term know.
func (c *cluster) store(incident *v1alpha1.Incident) {
	c.mu.Lock()
	c.objects[client.ObjectKeyFromObject(incident)] = incident
	c.mu.Unlock()
	c.term.incidents.put(incident, c.now().Add(-24*time.Hour))
}

// edit changes the status of an Incident.
func (c *cluster) edit(key types.NamespacedName, change func(*v1alpha1.IncidentStatus)) {
	edited := c.objects[key].DeepCopy()
	change(&edited.Status)
	c.folded++
	edited.ResourceVersion = fmt.Sprint(c.folded)
	c.store(edited)
}

// delete deletes an Incident.
func (c *cluster) delete(key types.NamespacedName) {
	c.mu.Lock()
	gone := c.objects[key].DeepCopy()
	delete(c.objects, key)
	c.folded++
	gone.ResourceVersion = fmt.Sprint(c.folded)
	c.mu.Unlock()
	c.term.incidentGone(gone)
}

func (c *cluster) decide(name string, before *v1alpha1.Incident, event *v1alpha1.AlertEvent) *v1alpha1.Incident {
	plan := fold.Decide(c.input(name, before, event))
	after := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: event.Namespace, Name: name}, Status: plan.Status}
	after.Spec = v1alpha1.IncidentSpec{IntegrationName: event.Spec.IntegrationName, DedupKey: event.Alerts[0].DedupKey}
	after.ResourceVersion = event.ResourceVersion
	after.Status.Ledger = v1alpha1.Ledger{}
	return after
}

// stored is an alert as Alertmanager keeps it.
type stored struct {
	labels           map[string]string
	annotations      map[string]string
	startsAt, endsAt time.Time
	generatorURL     string
}

// fakeAlertmanager behaves as Alertmanager's API v2 does, and is an http.RoundTripper. Its rules are those of provider/mem and
// types.Alert.Merge in Alertmanager 0.28.
type fakeAlertmanager struct {
	now      func() time.Time
	date     func() time.Time // what its answers tell
	mu       sync.Mutex
	alerts   map[string]stored // by the JSON of their labels
	requests int
	posted   int                        // alerts
	empty    int                        // requests without alerts
	listed   int                        // requests for the list
	fail     func(body string) int      // the status to answer with instead; 0: none, hangs: no answer
	hang     bool                       // requests are answered when their context ends
	takes    time.Duration              // for each answer
	fired    map[string][]time.Duration // by how long after the last end a set fired again
}

// hangs is a status that is none.
const hangs = -1

func newFakeAlertmanager() *fakeAlertmanager {
	return &fakeAlertmanager{now: time.Now, date: time.Now, alerts: map[string]stored{}, fired: map[string][]time.Duration{}}
}

// client returns a client of it.
func (a *fakeAlertmanager) client() *alertmanager.Client {
	return &alertmanager.Client{HTTP: &http.Client{Transport: a}, URL: &url.URL{Scheme: "http", Host: "alertmanager:9093"}}
}

// RoundTrip implements http.RoundTripper.
func (a *fakeAlertmanager) RoundTrip(request *http.Request) (*http.Response, error) {
	content, err := request.GetBody()
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(content)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	hang := a.hang || a.fail != nil && a.fail(string(body)) == hangs
	a.mu.Unlock()
	if hang {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	time.Sleep(a.takes)
	recorder := httptest.NewRecorder()
	a.ServeHTTP(recorder, request)
	return recorder.Result(), nil
}

// ServeHTTP implements http.Handler.
func (a *fakeAlertmanager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Date", a.date().UTC().Format(http.TimeFormat))
	a.requests++
	if a.fail != nil {
		if code := a.fail(string(body)); code != 0 {
			http.Error(w, "no", code)
			return
		}
	}
	if r.URL.Path == "/api/v2/alerts" && r.Method == http.MethodGet {
		a.list(w)
		return
	}
	if r.URL.Path != "/api/v2/alerts" || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
		err = errors.New("not an alert")
	}
	var posted []struct {
		Labels, Annotations map[string]string
		StartsAt, EndsAt    time.Time
		GeneratorURL        string
	}
	if err = errors.Join(err, json.Unmarshal(body, &posted)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if len(posted) == 0 {
		a.empty++
	}
	for _, p := range posted {
		if p.EndsAt.Before(p.StartsAt) || len(p.Labels) == 0 {
			http.Error(w, "start time must be before end time", http.StatusBadRequest)
			return
		}
		a.posted++
		a.put(stored{labels: p.Labels, annotations: p.Annotations, startsAt: p.StartsAt, endsAt: p.EndsAt, generatorURL: p.GeneratorURL})
	}
}

// list answers with the alerts that fire.
func (a *fakeAlertmanager) list(w http.ResponseWriter) {
	a.listed++
	alerts := []map[string]any{}
	for _, known := range a.alerts {
		if known.endsAt.After(a.now()) {
			alerts = append(alerts, map[string]any{"labels": known.labels})
		}
	}
	_ = json.NewEncoder(w).Encode(alerts)
}

func (a *fakeAlertmanager) put(s stored) {
	encoded, _ := json.Marshal(s.labels)
	set, now := string(encoded), a.now()
	old, known := a.alerts[set]
	overlap := s.endsAt.After(old.startsAt) && s.endsAt.Before(old.endsAt) ||
		s.startsAt.After(old.startsAt) && s.startsAt.Before(old.endsAt)
	if known && overlap {
		if old.startsAt.Before(s.startsAt) {
			s.startsAt = old.startsAt
		}
		resolved := !s.endsAt.After(now)
		if old.endsAt.After(s.endsAt) && (!resolved || !old.endsAt.After(now)) {
			s.endsAt = old.endsAt
		}
	}
	if s.endsAt.After(now) && (!known || !old.endsAt.After(now)) {
		a.fired[set] = append(a.fired[set], now.Sub(old.endsAt))
	}
	a.alerts[set] = s
}

// firing returns the sets that fire, each as name=value pairs without the labels that are always the same.
func (a *fakeAlertmanager) firing() []string { return a.sets(true) }

// sets returns the sets that fire, or all.
func (a *fakeAlertmanager) sets(onlyFiring bool) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var sets []string
	for _, alert := range a.alerts {
		if onlyFiring && !alert.endsAt.After(a.now()) {
			continue
		}
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(alert.labels)) {
			if name != "integration" && name != alerts.LabelIncident && name != alerts.LabelNamespace {
				pairs = append(pairs, name+"="+alert.labels[name])
			}
		}
		sets = append(sets, strings.Join(pairs, " "))
	}
	slices.Sort(sets)
	return sets
}
