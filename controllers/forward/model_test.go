package forward

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
	"github.com/tocsin-dev/tocsin/controllers/forward/config"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// world is a cluster, an Alertmanager and the poster of the present leader, with a clock that the test moves.
type world struct {
	*rapid.T
	time    time.Time
	cluster *cluster
	am      *fakeAlertmanager
	target  *config.Target
	poster  *poster
	down    time.Time // since when the Alertmanager has rejected every request; zero: it does not
	swept   time.Time
	// shown is the set of each Incident that is to fire: its own, or the one that fired when it was muted.
	shown map[types.NamespacedName]string
	// begun is how often each Incident began to have a set: the model's limit of how often it may fire.
	begun map[types.NamespacedName]map[string]int
	// held is when each Incident opened that is held back, and holdFor for how long those of a severity are.
	held    map[types.NamespacedName]time.Time
	holdFor map[v1alpha1.Severity]time.Duration
	keeps   bool // what flaps fires on for a while, and is not held back
}

func newWorld(t *rapid.T) *world {
	w := &world{T: t, time: noon, cluster: newCluster(), am: newFakeAlertmanager(), begun: map[types.NamespacedName]map[string]int{}}
	w.shown, w.held = map[types.NamespacedName]string{}, map[types.NamespacedName]time.Time{}
	w.cluster.now = func() time.Time { return w.time }
	w.am.now = w.cluster.now
	w.target = targetOf(&config.Config{})
	w.cluster.integrate(v1alpha1.WebhookIntegrationSpec{})
	w.lead()
	return w
}

// lead replaces the leader: the new poster knows nothing.
func (w *world) lead() {
	w.cluster.clock = func() (time.Time, bool) { return w.time, true }
	w.poster = newPoster(w.cluster.term, "alertmanager:9093", "model")
	w.poster.configured.Store(&requestParams{target: w.target, client: w.am.client()})
	params, _ := w.poster.requestParams()
	if err := w.poster.readFormer(w.Context(), params); err != nil {
		w.Fatal(err)
	}
	w.poster.postMuted()
	w.sweep()
}

func (w *world) sweep() {
	w.swept = w.time
	for key, incident := range w.cluster.objects {
		if w.setOf(incident) == "" {
			w.shown[key] = ""
		}
	}
	w.poster.schedule.beginRound(w.time.Add(-w.target.EndedWindow()))
	w.post()
}

// post empties the queue, unless a request fails.
func (w *world) post() {
	for {
		params, _ := w.poster.requestParams()
		b := w.poster.next(w.Context(), params)
		if len(b.posts)+len(b.alone) == 0 {
			return
		}
		if err := w.poster.deliver(w.Context(), params, b); err != nil {
			w.poster.schedule.putBack(slices.Concat(b.posts, b.alone))
			return
		}
	}
}

// pass lets time pass, with a sweep each minute.
func (w *world) pass(d time.Duration) {
	for end := w.time.Add(d); w.time.Before(end); {
		nextRound := fold.Latest(w.time, w.swept.Add(alerts.MaxRoundInterval))
		w.time = fold.Earliest(end, nextRound)
		w.refold()
		if !w.time.Before(w.swept.Add(alerts.MaxRoundInterval)) {
			w.sweep()
		}
		w.check()
	}
}

// setOf returns the labels that may differ between the sets of an Incident; empty if none is to fire.
func (w *world) setOf(incident *v1alpha1.Incident) string {
	if incident == nil || incident.Status.State != v1alpha1.IncidentOpen && !fold.EndIsKeptBack(&incident.Status, w.time) {
		return ""
	}
	name := incident.Status.Alert.Type
	if name == "webhook" {
		name = "mon"
	}
	return fmt.Sprintf("alertname=%s severity=%s", name, fold.ForwardedSeverity(&incident.Status))
}

// alert folds an alert.
func (w *world) alert() {
	alert := v1alpha1.Alert{
		DedupKey: rapid.SampledFrom([]string{"a", "b"}).Draw(w.T, "key"),
		Status:   rapid.SampledFrom([]v1alpha1.AlertStatus{"firing", "firing", "resolved", "acknowledged"}).Draw(w.T, "status"),
	}
	alert.Severity = rapid.SampledFrom([]v1alpha1.Severity{"", "info", "warning", "critical"}).Draw(w.T, "severity")
	alert.Type = rapid.SampledFrom([]string{"", "Disk", "Memory"}).Draw(w.T, "type")
	key := types.NamespacedName{Namespace: "shop", Name: v1alpha1.IncidentName("mon", alert.DedupKey)}
	if w.cluster.objects[key] == nil && alert.Status != v1alpha1.AlertFiring {
		return
	}
	before, after := w.cluster.fold(alert)
	if received, urgent := alerts.Urgent(before, after, nil); urgent {
		w.poster.schedule.changed.add(key, received)
	}
	w.follow(before, after)
}

// follow notes which set of an Incident is to fire after a change.
func (w *world) follow(before, after *v1alpha1.Incident) {
	key, set := client.ObjectKeyFromObject(after), w.setOf(after)
	if before != nil && before.Status.State == after.Status.State && after.Status.State == v1alpha1.IncidentResolved {
		return // the next sweep tells of an end that was kept back
	}
	_, _, muted := w.cluster.windows.In(namespace).Mutes(&after.Status.Alert, w.time)
	switch {
	case w.holds(before, after):
		set = ""
	case !muted || set == "":
	case w.setOf(before) != "":
		set = w.shown[key]
	default:
		set = ""
	}
	if set != "" && set != w.shown[key] {
		if w.begun[key] == nil {
			w.begun[key] = map[string]int{}
		}
		w.begun[key][set]++
	}
	w.shown[key] = set
}

// holds reports whether an open Incident was not open for as long as its severity asks, since its episode began. What its former
// severity has freed stays so, also if its time came after the last fold.
func (w *world) holds(before, after *v1alpha1.Incident) bool {
	key := client.ObjectKeyFromObject(after)
	switch {
	case w.setOf(after) == "":
		delete(w.held, key)
	case w.setOf(before) == "" && (!w.keeps || !flaps(after)):
		w.held[key] = w.time
	}
	opened, held := w.held[key]
	length := w.holdFor[after.Status.Alert.Severity]
	if before != nil && w.setOf(before) != "" {
		length = min(length, w.holdFor[before.Status.Alert.Severity])
	}
	if held && !w.time.Before(opened.Add(length)) {
		delete(w.held, key)
		held = false
	}
	return held
}

func flaps(incident *v1alpha1.Incident) bool {
	return meta.IsStatusConditionTrue(incident.Status.Conditions, v1alpha1.ConditionFlapping)
}

// refold folds the Incidents of which other windows are open now.
func (w *world) refold() {
	for _, before := range w.cluster.refold() {
		after := w.cluster.objects[client.ObjectKeyFromObject(before)]
		if received, urgent := alerts.Urgent(before, after, nil); urgent {
			w.poster.schedule.changed.add(client.ObjectKeyFromObject(after), received)
		}
		w.follow(before, after)
	}
}

// window replaces the maintenance windows.
func (w *world) window(windows ...v1alpha1.MaintenanceWindow) {
	w.cluster.replaceWindows(windows...)
	w.refold()
}

// drawWindow draws a window that is open now or soon.
func (w *world) drawWindow(t *rapid.T, name string) v1alpha1.MaintenanceWindow {
	start := w.time.Add(time.Duration(rapid.IntRange(-10, 10).Draw(t, "start")) * time.Minute)
	length := time.Duration(rapid.IntRange(1, 60).Draw(t, "minutes")) * time.Minute
	window := testenv.Window(namespace, name, start, start.Add(length))
	if rapid.Bool().Draw(t, "match") {
		window.Spec.Match = &v1alpha1.MaintenanceMatch{Severities: []v1alpha1.Severity{"warning", "info"}}
	}
	return window
}

// check checks that no Open Incident is without a firing alert, unless it never had one or the Alertmanager was away.
func (w *world) check() {
	if !w.down.IsZero() {
		return
	}
	firing := w.firing()
	for key, incident := range w.cluster.objects {
		if w.shown[key] != "" && w.setOf(incident) != "" && len(firing[key]) == 0 && w.poster.schedule.changed.turns.IsEmpty() {
			w.Fatalf("%s is open, and nothing fires", key.Name)
		}
		if incident.Status.State == v1alpha1.IncidentOpen && w.shown[key] == "" && incident.Status.Mute == nil && w.held[key].IsZero() {
			w.Fatalf("%s is open, neither muted nor held back, and nothing is to fire", key.Name)
		}
	}
}

// firing returns the sets that fire, by Incident.
func (w *world) firing() map[types.NamespacedName][]string {
	found := map[types.NamespacedName][]string{}
	for _, alert := range w.am.alerts {
		if alert.endsAt.After(w.time) {
			key := types.NamespacedName{Namespace: alert.labels[alerts.LabelNamespace], Name: alert.labels[alerts.LabelIncident]}
			found[key] = append(found[key], "alertname="+alert.labels["alertname"]+" severity="+alert.labels["severity"])
		}
	}
	return found
}

// settled checks, after everything was posted, that each Incident's own set fires and no other.
func (w *world) settled() {
	if !w.down.IsZero() {
		return
	}
	w.post()
	if former := w.poster.record.withFormer(); len(former) > 0 { // what earlier leaders have posted ends later
		w.pass(alerts.FormerDelay)
		for _, key := range former {
			w.poster.schedule.changed.add(key, time.Time{})
		}
	}
	w.time = w.time.Add(time.Second)
	w.refold() // what is due by then
	w.post()
	firing := w.firing()
	for key, incident := range w.cluster.objects {
		var want []string
		if set := w.shown[key]; set != "" {
			want = []string{set}
		}
		if len(firing[key]) == 0 && w.setOf(incident) == "" {
			continue // its end was kept back until now; another round would tell it as well
		}
		if !slices.Equal(firing[key], want) {
			w.Fatalf("%s: %v fires instead of %v", key.Name, firing[key], want)
		}
	}
	for set, fired := range w.am.fired {
		alert := w.am.alerts[set]
		key := types.NamespacedName{Namespace: alert.labels[alerts.LabelNamespace], Name: alert.labels[alerts.LabelIncident]}
		name := "alertname=" + alert.labels["alertname"] + " severity=" + alert.labels["severity"]
		if begun := w.begun[key][name]; len(fired) > begun {
			w.Fatalf("%s began %d times and fired %d times", set, begun, len(fired))
		}
	}
}

// Property: whatever alerts come, and whichever leaders and outages, the Alertmanager ends up with exactly the set of each
// open Incident, or the one that fired when it was muted; no set fires more often than it began; no open Incident that is neither
// muted nor held back is without an alert; nothing is posted of one that ends while it is held back; and one that flaps fires on
// for its time.
func TestAlertmanagerFollowsTheIncidents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		if rapid.Bool().Draw(t, "hold back") {
			w.holdFor = map[v1alpha1.Severity]time.Duration{"info": 5 * time.Minute, "warning": 2 * time.Minute}
			length := func(of v1alpha1.Severity) *metav1.Duration { return &metav1.Duration{Duration: w.holdFor[of]} }
			w.cluster.integrate(v1alpha1.WebhookIntegrationSpec{ForwardAfter: &v1alpha1.ForwardAfter{
				Default: length("warning"), Info: length("info"), Critical: length("critical"),
			}})
		}
		if keep := rapid.SampledFrom([]time.Duration{0, 3 * time.Minute, 20 * time.Minute}).Draw(t, "keep firing"); keep > 0 {
			spec := w.cluster.spec
			spec.Flapping = &v1alpha1.FlappingPolicy{Openings: 1, KeepFiringFor: &metav1.Duration{Duration: keep}}
			w.cluster.integrate(spec)
			w.keeps = true
		}
		steps := map[string]func(*rapid.T){
			"":      func(*rapid.T) { w.settled() },
			"alert": func(*rapid.T) { w.alert() },
			"post":  func(*rapid.T) { w.post() },
			"windows": func(t *rapid.T) {
				w.window([]v1alpha1.MaintenanceWindow{w.drawWindow(t, "w"), w.drawWindow(t, "x")}[:rapid.IntRange(0, 2).Draw(t, "windows")]...)
			},
			"pass": func(t *rapid.T) {
				w.post()
				w.pass(time.Duration(rapid.IntRange(1, 20*60).Draw(t, "seconds")) * time.Second)
			},
			"outage": func(t *rapid.T) {
				w.down = w.time
				w.am.fail = func(string) int { return http.StatusBadGateway }
				w.post()
				w.pass(time.Duration(rapid.IntRange(1, 13*60).Draw(t, "seconds")) * time.Second)
				w.am.fail = nil
				w.sweep()
				w.down = time.Time{}
			},
		}
		if rapid.Bool().Draw(t, "leaders") {
			steps["leader"] = func(*rapid.T) {
				w.post()
				w.pass(time.Second)
				w.lead()
			}
		}
		t.Repeat(steps)
	})
}
