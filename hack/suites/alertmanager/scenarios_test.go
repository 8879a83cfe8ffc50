//go:build slow

package alertmanager

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// scenarios are run one after the other. The judge looks at all of them at the end.
var scenarios = []struct {
	name  string
	short bool
	run   func(r *rig)
}{
	{"the configurations of the guide", false, guide},
	{"the steps of the guide, from an alert to the end of its page under a silence", true, walkthrough},
	{"an alert fires, repeats, changes its severity and is resolved", true, lifecycle},
	{"an acknowledgement notifies nobody", false, acknowledge},
	{"an acknowledgement that expires notifies again", false, acknowledgementExpires},
	{"an assignment notifies only if the configuration has its label", false, assign},
	{"a silence that was requested from Tocsin", false, silenceFromTocsin},
	{"a silence that was requested from Tocsin and ended in Alertmanager", false, silenceEndedInAlertmanager},
	{"a silence that was created in Alertmanager", false, silenceFromAlertmanager},
	{"a maintenance window, in which the leader is killed", true, maintenanceWindow},
	{"Incidents are held back, and the leader is killed meanwhile", true, holdBack},
	{"an Incident that flaps, and the leader is killed meanwhile", false, flaps},
	{"the Watchdog of a Prometheus is a heartbeat", false, prometheusWatchdog},
	{"a watchdog outside hears that Tocsin is alive, and nothing while it cannot fold", false, aliveSignal},
	{"an Incident that is reopened within 15 minutes", true, reopen},
	{"the leader is killed", false, killLeader},
	{"a zombie leader: it stands still, another takes over, it goes on", false, zombieLeader},
	{"one Alertmanager is down", false, oneDown},
	{"both Alertmanagers are down for 40 s, which stands for 10 min", false, bothDown},
	{"Tocsin is down for 40 s of an expiry of 60 s, which stands for 10 of 15 min", false, tocsinDown},
	{"the leader's clock is an hour ahead", false, func(r *rig) { r.wrongClock("ahead", "1h") }},
	{"the leader's clock is an hour behind", false, func(r *rig) { r.wrongClock("behind", "-1h") }},
	{"an invalid file and an unknown host", false, badConfig},
	{"an Alertmanager that rejects one alert, answers 500, and hangs", false, badAlertmanager},
	{"50 transitions a second: from 202 to Alertmanager within 2 s", false, latency},
}

// TestNotifications runs the scenarios, with -short those of the life cycle with one manager.
func TestNotifications(t *testing.T) {
	replicas := 2
	if testing.Short() {
		replicas = 1
	}
	r := startRig(t, replicas)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(r.receiver.history())
		}
	})
	for _, s := range scenarios {
		if s.short || !testing.Short() {
			r.Run(s.name, func() { s.run(r) })
		}
	}
	r.judge()
	t.Log(r.receiver.summary())
}

func lifecycle(r *rig) {
	for range 5 { // four of them are repeats
		r.post("life", "warning", firing)
	}
	r.tell("life", "warning", firing)
	r.told()
	r.happens("life", "critical", firing)
	r.tell("life", "warning", resolved)
	r.told()
	r.ends("life", "critical")
}

// act creates an AlertEvent of a user about the Incident of a key.
func (r *rig) act(key string, report v1alpha1.Report) {
	report.By, report.IncidentName = "maria", name(key)
	r.Must(r.Client.Create(r.Context, &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "act-"},
		Spec:       v1alpha1.AlertEventSpec{Report: &report},
	}))
}

// becomes waits until a condition of the Incident of a key has a reason.
func (r *rig) becomes(key, condition, reason string) {
	r.T.Helper()
	r.Await(testenv.WaitTimeout, func(ctx context.Context) error {
		incident, err := r.incident(ctx, key)
		if err != nil {
			return err
		}
		if has := meta.FindStatusCondition(incident.Status.Conditions, condition); has == nil || has.Reason != reason {
			return fmt.Errorf("%s of %s is %+v, not %s", condition, key, has, reason)
		}
		return nil
	})
}

func acknowledge(r *rig) {
	r.begins("ack", "error")
	r.act("ack", v1alpha1.Report{Status: v1alpha1.AlertAcknowledged})
	r.becomes("ack", v1alpha1.ConditionAcknowledged, v1alpha1.ReasonAcknowledgedByUser)
	r.unchanged(quietTime)
	r.ends("ack", "error")
}

func acknowledgementExpires(r *rig) {
	const key, severity, lasts = "forgotten", "error", time.Minute
	r.begins(key, severity)
	r.act(key, v1alpha1.Report{Status: v1alpha1.AlertAcknowledged, AcknowledgeFor: &metav1.Duration{Duration: lasts}})
	r.becomes(key, v1alpha1.ConditionAcknowledged, v1alpha1.ReasonAcknowledgedByUser)
	r.unchanged(lasts / 2)
	r.Pause(lasts / 2)
	r.becomes(key, v1alpha1.ConditionAcknowledged, v1alpha1.ReasonExpired)
	again := severity + reminder("1")
	r.tell(key, again, firing)
	r.tell(key, severity, resolved)
	r.told()
	r.post(key, severity, resolved)
	r.tell(key, again, resolved)
	r.told()
}

func assign(r *rig) {
	const key, severity = "assigned", "error"
	r.begins(key, severity)
	r.act(key, v1alpha1.Report{Status: v1alpha1.AlertAssigned, Assignee: "alex"})
	r.unchanged(quietTime)
	r.configure("assignee_label: true\n") // with it, the alert that fires is another one
	r.tell(key, severity+assignedTo("alex"), firing)
	r.tell(key, severity, resolved)
	r.told()
	r.act(key, v1alpha1.Report{Status: v1alpha1.AlertAssigned, Assignee: "maria"})
	r.tell(key, severity+assignedTo("maria"), firing)
	r.tell(key, severity+assignedTo("alex"), resolved)
	r.told()
	r.act(key, v1alpha1.Report{Status: v1alpha1.AlertUnassigned})
	r.tell(key, severity, firing)
	r.tell(key, severity+assignedTo("maria"), resolved)
	r.told()
	r.ends(key, severity)
	r.configure("")
	r.Pause(reloadTime)
}

// holdBack forwards Incidents that are open for a while, other than critical ones.
func holdBack(r *rig) {
	const brief, long, worse = "brief-hold", "long-hold", "worse-hold"
	length := 45 * time.Second // a killed leader's lease lasts for 15 s
	if testing.Short() {
		length = 10 * time.Second
	}
	after := &v1alpha1.ForwardAfter{Default: &metav1.Duration{Duration: length}, Critical: &metav1.Duration{}}
	r.specify(func(spec *v1alpha1.WebhookIntegrationSpec) { spec.ForwardAfter = after })
	for _, held := range []subject{{name(brief), "error"}, {name(long), "error"}, {name(worse), "error"}} {
		r.story[held] = []string{} // nothing yet
	}
	r.post(brief, "error", firing)
	r.post(worse, "error", firing)
	r.post(long, "error", firing)
	end := time.Now().Add(length)
	r.happens(worse, "critical", firing)
	r.told()
	r.post(brief, "error", resolved)
	if m := r.managers[r.Leader(r.managers)]; !testing.Short() {
		r.receiver.fault()
		m.Kill()
		r.Start(m.Process)
		r.Leader(r.managers)
	}
	r.unchanged(time.Until(end) - 2*time.Second - 3*peerTimeout)
	r.Pause(time.Until(end))
	r.tell(long, "error", firing)
	r.told()
	r.ends(long, "error")
	r.ends(worse, "critical")
	r.specify(func(spec *v1alpha1.WebhookIntegrationSpec) { spec.ForwardAfter = nil })
}

// specify changes the integration.
func (r *rig) specify(change func(*v1alpha1.WebhookIntegrationSpec)) {
	integration := &v1alpha1.WebhookIntegration{}
	r.Must(r.Client.Get(r.Context, client.ObjectKey{Namespace: namespace, Name: namespace}, integration))
	before := integration.DeepCopy()
	change(&integration.Spec)
	r.Must(r.Client.Patch(r.Context, integration, client.MergeFrom(before)))
	r.Pause(time.Second) // the leader's cache shows it
}

// flaps has an Incident flap from its second opening on: its ends are kept back until it is quiet for a minute.
func flaps(r *rig) {
	const key, severity, keep = "flapping", "error", time.Minute
	r.specify(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Flapping = &v1alpha1.FlappingPolicy{Openings: 1, KeepFiringFor: &metav1.Duration{Duration: keep}}
	})
	r.begins(key, severity)
	r.ends(key, severity)
	r.begins(key, severity)
	r.becomes(key, v1alpha1.ConditionFlapping, v1alpha1.ReasonOpenedOften)
	for range 2 {
		r.post(key, severity, resolved)
		r.unchanged(keep / 3)
		r.post(key, severity, firing)
		r.unchanged(keep / 3)
	}
	r.post(key, severity, resolved)
	due := time.Now().Add(keep)
	r.receiver.fault()
	m := r.managers[r.Leader(r.managers)]
	m.Kill()
	r.Start(m.Process)
	r.Leader(r.managers)
	r.unchanged(time.Until(due) - 2*time.Second - 3*peerTimeout)
	r.tell(key, severity, resolved)
	r.told()
	r.begins(key, "warning")
	r.act(key, v1alpha1.Report{Status: v1alpha1.AlertResolved})
	r.tell(key, "warning", resolved)
	r.told()
	r.specify(func(spec *v1alpha1.WebhookIntegrationSpec) { spec.Flapping = nil })
}

func silenceFromTocsin(r *rig) {
	r.begins("silence", "critical")
	silence := func(length time.Duration) {
		request := v1alpha1.Report{Status: v1alpha1.AlertSilenced, SilenceFor: &metav1.Duration{Duration: length}, Comment: "maintenance"}
		r.act("silence", request)
	}
	silence(time.Hour)
	r.becomes("silence", v1alpha1.ConditionSilenced, v1alpha1.ReasonSilenced)
	r.post("silence", "critical", firing)
	r.unchanged(quietTime)
	silence(0)
	r.becomes("silence", v1alpha1.ConditionSilenced, v1alpha1.ReasonNotSilenced)
	r.ends("silence", "critical")
}

// maintain replaces the maintenance windows.
func (r *rig) maintain(windows ...v1alpha1.MaintenanceWindow) {
	r.Must(r.Client.DeleteAllOf(r.Context, &v1alpha1.MaintenanceWindow{}, client.InNamespace(namespace)))
	for i := range windows {
		r.Must(r.Client.Create(r.Context, &windows[i]))
	}
}

// muted waits until an Incident is muted, or not, with a severity that stays forwarded.
func (r *rig) muted(key string, want bool, forwarded v1alpha1.Severity) {
	r.T.Helper()
	r.Await(testenv.WaitTimeout, func(ctx context.Context) error {
		incident, err := r.incident(ctx, key)
		if err != nil {
			return err
		}
		if mute := incident.Status.Mute; (mute != nil) != want || want && mute.ForwardedSeverity != forwarded {
			return fmt.Errorf("%s: mute is %+v", key, mute)
		}
		return nil
	})
}

func maintenanceWindow(r *rig) {
	const before, within, brief, over = "before-window", "within-window", "brief-window", "over-window"
	length := 45 * time.Second // of the window, in which the leader is killed
	if testing.Short() {
		length = 10 * time.Second
	}
	r.begins(before, "warning")
	r.begins(over, "error")
	end := time.Now().Add(length)
	r.maintain(testenv.Window(namespace, "db", time.Now().Add(-time.Minute), end))
	r.muted(before, true, v1alpha1.SeverityWarning)
	for _, held := range []subject{{name(within), "critical"}, {name(before), "critical"}, {name(brief), "error"}} {
		r.story[held] = []string{} // nothing yet
	}
	r.post(within, "critical", firing)
	r.post(before, "critical", firing)
	r.post(brief, "error", firing)
	r.post(brief, "error", resolved)
	r.ends(over, "error")
	r.muted(within, true, "")
	if m := r.managers[r.Leader(r.managers)]; !testing.Short() {
		r.receiver.fault()
		m.Kill()
		r.Start(m.Process)
		r.Leader(r.managers)
	}
	r.unchanged(time.Until(end) - 2*time.Second - 3*peerTimeout)
	r.Pause(time.Until(end))

	r.tell(before, "critical", firing)
	r.tell(before, "warning", resolved)
	r.tell(within, "critical", firing)
	r.told()
	r.muted(within, false, "")
	r.ends(within, "critical")
	r.ends(before, "critical")
	r.maintain()
}

func silenceEndedInAlertmanager(r *rig) {
	const key = "expired"
	r.begins(key, "critical")
	r.act(key, v1alpha1.Report{Status: v1alpha1.AlertSilenced, SilenceFor: &metav1.Duration{Duration: time.Hour}})
	r.becomes(key, v1alpha1.ConditionSilenced, v1alpha1.ReasonSilenced)
	url := "http://" + r.addresses[0] + "/api/v2/silence"
	list, err := testenv.Call(r.Context, http.MethodGet, url+"s", "")
	r.Must(err)
	var silences []struct{ ID, Comment string }
	r.Must(json.Unmarshal([]byte(list), &silences))
	silences = slices.DeleteFunc(silences, func(s struct{ ID, Comment string }) bool { return !strings.Contains(s.Comment, name(key)) })
	for _, s := range silences {
		_, err := testenv.Call(r.Context, http.MethodDelete, url+"/"+s.ID, "")
		r.Must(err)
	}
	r.becomes(key, v1alpha1.ConditionSilenced, v1alpha1.ReasonNotSilenced)
	incident, err := r.incident(r.Context, key)
	r.Must(err)
	if timeline := incident.Status.Timeline; timeline[len(timeline)-1].Type != v1alpha1.TransitionUnsilenced || incident.Status.Silence != nil {
		r.T.Fatalf("the request did not end: %+v", timeline)
	}
	r.ends(key, "critical")
}

func silenceFromAlertmanager(r *rig) {
	r.begins("muted", "critical")
	matcher := map[string]any{"name": v1alpha1.ForwardedLabel, "value": name("muted"), "isRegex": false, "isEqual": true}
	body, err := json.Marshal(map[string]any{
		"matchers": []any{matcher}, "createdBy": "ops", "comment": "deploy",
		"startsAt": time.Now(), "endsAt": time.Now().Add(time.Hour),
	})
	r.Must(err)
	answer, err := testenv.Call(r.Context, http.MethodPost, "http://"+r.addresses[0]+"/api/v2/silences", string(body))
	r.Must(err)
	r.becomes("muted", v1alpha1.ConditionSilenced, v1alpha1.ReasonSilenced)
	incident, err := r.incident(r.Context, "muted")
	r.Must(err)
	if meta.IsStatusConditionTrue(incident.Status.Conditions, v1alpha1.ConditionAcknowledged) {
		r.T.Fatal("the silence acknowledged the Incident")
	}
	var created struct{ SilenceID string }
	r.Must(json.Unmarshal([]byte(answer), &created))
	if by := incident.Status.SilencedBy; by.ID != created.SilenceID || !strings.HasSuffix(by.Link, "/#/silences/"+created.SilenceID) {
		r.T.Fatalf("the silence is %s, and %+v covers the Incident", created.SilenceID, by)
	}
	_, err = testenv.Call(r.Context, http.MethodDelete, "http://"+r.addresses[1]+"/api/v2/silence/"+created.SilenceID, "")
	r.Must(err)
	r.becomes("muted", v1alpha1.ConditionSilenced, v1alpha1.ReasonNotSilenced)
	r.ends("muted", "critical")
}

func reopen(r *rig) {
	for range 2 {
		r.begins("again", "critical")
		r.ends("again", "critical")
	}
	r.unchanged(quietTime)
}
