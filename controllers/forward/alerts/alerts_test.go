package alerts

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/integrations"
)

// targetOf returns a target with settings, which get an expiry.
func targetOf(settings *Settings) *Target {
	settings.Expiry = 15 * time.Minute
	return &Target{Settings: settings, Integrations: labels.Everything()}
}

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func at(minutes float64) *v1alpha1.Timestamp {
	stamp := v1alpha1.NewTimestamp(noon.Add(time.Duration(minutes * float64(time.Minute))))
	return &stamp
}

// openIncident returns an Incident that opened at noon.
func openIncident() *v1alpha1.Incident {
	incident := &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mon-abc"},
		Spec:       v1alpha1.IncidentSpec{IntegrationName: "mon", DedupKey: "k"},
	}
	incident.Status = v1alpha1.IncidentStatus{
		State: v1alpha1.IncidentOpen, OpenedTime: at(0), Episode: &v1alpha1.Episode{Number: 1, StartTime: *at(-1), AlertCount: 3},
		Timeline: []v1alpha1.Transition{
			{Type: v1alpha1.TransitionOpened, Time: *at(0), Severity: "warning"},
		},
	}
	incident.Status.Alert = v1alpha1.AlertContent{
		Title: "Disk full", Description: "/var is full.\nDelete something.", Severity: "warning", Type: "webhook",
		Hostname: "db-1", Link: "https://example.com/d?x=1",
	}
	return incident
}

// postedAt returns the alerts of an Incident at a time, as Alertmanager decodes them.
func postedAt(t *testing.T, incident *v1alpha1.Incident, settings *Settings, minutes float64) []map[string]any {
	t.Helper()
	now := at(minutes).Time
	target := targetOf(settings)
	wanted := target.Want(incident, &v1alpha1.WebhookIntegration{}, nil, now)
	encoded, err := json.Marshal(Make(client.ObjectKeyFromObject(incident), incident, wanted, settings, now, 0))
	var decoded []map[string]any
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(json.Unmarshal(encoded, &decoded)).To(Succeed())
	return decoded
}

func TestAlertOfAnOpenIncident(t *testing.T) {
	g := NewWithT(t)
	incident := openIncident()
	incident.Status.Acknowledgement = &v1alpha1.Acknowledgement{Time: *at(1), By: "maria"}
	g.Expect(postedAt(t, incident, &Settings{ExternalLabels: map[string]string{"cluster": "prod-1"}}, 10)).To(Equal([]map[string]any{{
		"labels": map[string]any{
			"alertname": "mon", "namespace": "shop", "integration": "mon", "tocsin_incident": "mon-abc", "severity": "warning",
			"cluster": "prod-1",
		},
		"annotations": map[string]any{
			"summary": "Disk full", "description": "/var is full.\nDelete something.", "host": "db-1", "count": "3",
			"acknowledged_by": "maria", "command": "kubectl tocsin show mon-abc --namespace shop",
		},
		"startsAt": "2026-05-04T11:59:00Z", "endsAt": "2026-05-04T12:25:00Z", "generatorURL": "https://example.com/d?x=1",
	}}))
}

func TestAlertLeadsToThePage(t *testing.T) {
	g := NewWithT(t)
	page, err := url.Parse("https://incidents.example.com/tocsin/")
	g.Expect(err).NotTo(HaveOccurred())
	posted := postedAt(t, openIncident(), &Settings{AlertAnnotations: []string{"incident_url"}, PageURL: page}, 10)
	g.Expect(posted).To(HaveLen(1))
	g.Expect(posted[0]["generatorURL"]).To(Equal("https://incidents.example.com/tocsin/incidents/shop/mon-abc"))
	g.Expect(posted[0]["annotations"]).To(HaveKeyWithValue("incident_url", "https://incidents.example.com/tocsin/incidents/shop/mon-abc"))
	g.Expect(posted[0]["annotations"]).To(HaveKeyWithValue("source_url", "https://example.com/d?x=1"))
}

func TestLabelsOfAlerts(t *testing.T) {
	settings := &Settings{AlertLabels: []string{"team", "mount"}, ExternalLabels: map[string]string{"cluster": "prod-1"}}
	team := func(text string) map[string]string { return map[string]string{"team": text} }
	for name, c := range map[string]struct {
		change      func(*v1alpha1.AlertContent)
		label, want string
	}{
		"a type names the alert":          {func(a *v1alpha1.AlertContent) { a.Type = "DiskFull" }, "alertname", "DiskFull"},
		"no type":                         {func(a *v1alpha1.AlertContent) { a.Type = "" }, "alertname", "mon"},
		"a type of control characters":    {func(a *v1alpha1.AlertContent) { a.Type = "\x00\u202e" }, "alertname", "mon"},
		"a long type":                     {func(a *v1alpha1.AlertContent) { a.Type = strings.Repeat("é", 1024) }, "alertname", strings.Repeat("é", 255) + "…"},
		"a string":                        {func(a *v1alpha1.AlertContent) { a.Labels = team("core") }, "team", "core"},
		"a value that was no string":      {func(a *v1alpha1.AlertContent) { a.Labels = team(`{"a":1}`) }, "team", `{"a":1}`},
		"an empty label is none":          {func(a *v1alpha1.AlertContent) { a.Labels = team(" ") }, "team", ""},
		"several lines are one":           {func(a *v1alpha1.AlertContent) { a.Labels = team("a\nb") }, "team", "a b"},
		"a label that is not allowed":     {func(a *v1alpha1.AlertContent) { a.Labels = map[string]string{"pod": "x"} }, "pod", ""},
		"the sender's cluster is ignored": {func(a *v1alpha1.AlertContent) { a.Labels = map[string]string{"cluster": "x"} }, "cluster", "prod-1"},
	} {
		t.Run(name, func(t *testing.T) {
			incident := openIncident()
			c.change(&incident.Status.Alert)
			labels, _ := postedAt(t, incident, settings, 1)[0]["labels"].(map[string]any)
			if c.want == "" {
				NewWithT(t).Expect(labels).NotTo(HaveKey(c.label))
			} else {
				NewWithT(t).Expect(labels).To(HaveKeyWithValue(c.label, c.want))
			}
		})
	}
}

// Only Incidents of a federated integration have hops, whatever labels a sender sets, and a lost number is the last one.
func TestHopsOfAlerts(t *testing.T) {
	const none, beyond = "", "4"
	for name, c := range map[string]struct {
		federate   bool
		label, key string
		want       string
	}{
		"an Incident of this Tocsin's own":         {false, "", "k", none},
		"one whose sender set the label":           {false, "3", "k", none},
		"a federated Incident":                     {true, "1", "k", "2"},
		"one of the second hop":                    {true, "2", "k", "3"},
		"one of the last hop":                      {true, "3", "k", beyond},
		"a tenant wrote a larger number":           {true, "9", "k", beyond},
		"a tenant wrote a negative number":         {true, "-9", "k", beyond},
		"a tenant wrote a text":                    {true, "x", "k", beyond},
		"the content was rejected, and is lost":    {true, "", "k", beyond},
		"a heartbeat of the integration is missed": {true, "", "heartbeat/leaf", none},
		"a sender imitates the key of a heartbeat": {true, "3", "heartbeat/leaf", beyond},
	} {
		t.Run(name, func(t *testing.T) {
			incident, integration := openIncident(), &v1alpha1.WebhookIntegration{}
			incident.Spec.DedupKey, integration.Spec.Federate = c.key, c.federate
			if c.label != "" {
				incident.Status.Alert.Labels = v1alpha1.Texts{v1alpha1.HopsLabel: c.label}
			}
			labels := map[string]string{}
			g := NewWithT(t)
			g.Expect(json.Unmarshal([]byte(labelsOf(incident, integration, &Settings{})), &labels)).To(Succeed())
			g.Expect(labels[v1alpha1.HopsLabel]).To(Equal(c.want))
			g.Expect(len(labels)).To(Equal(4 + min(1, len(c.want))))
		})
	}
}

// The name of an alert is that of the next host's, and stays the same while it fires.
func TestTheTitleNamesTheAlert(t *testing.T) {
	for title, want := range map[string]string{
		"Backup failed": "Backup failed", "Disk 91% full on db-1": "Disk full on", "42 + 17": "+", "2026-03-01": "mon", "": "mon",
		"a\n\tb": "a b", "Диск ٣ полон": "Диск полон",
	} {
		incident := openIncident()
		incident.Status.Episode.Title = title
		NewWithT(t).Expect(alertName(incident)).To(Equal(want), title)
	}
}

func TestAnnotationsOfTheSender(t *testing.T) {
	settings := &Settings{AlertAnnotations: []string{"runbook_url", "impact", "dashboard_url", "other"}}
	sent := v1alpha1.Texts{
		"runbook_url": " https://example.com/r ", "dashboard_url": "javascript:alert(1)", "impact": strings.Repeat("é", 3000),
		"secret": "x", "summary": "not the title",
	}
	check := func(g *WithT, incident *v1alpha1.Incident) {
		annotations, _ := postedAt(t, incident, settings, 1)[0]["annotations"].(map[string]any)
		g.Expect(annotations).To(And(
			HaveKeyWithValue("runbook_url", "https://example.com/r"), HaveKeyWithValue("impact", strings.Repeat("é", 2047)+"…"),
			HaveKeyWithValue("summary", "Disk full"), Not(HaveKey("dashboard_url")), Not(HaveKey("secret")), Not(HaveKey("other"))))
	}
	incident := openIncident()
	incident.Status.Alert.Annotations = sent
	check(NewWithT(t), incident)

	check(NewWithT(t), Compact(incident, settings)) // the end of an Incident has them as well
}

func TestLinksAndTexts(t *testing.T) {
	g := NewWithT(t)
	for link, want := range map[string]string{
		"http://a/b": "http://a/b", "https://[::1]/?q=a%20b#c": "https://[::1]/?q=a%20b#c",
		"javascript:alert(1)": "", "ftp://a": "", "https://": "", "/relative": "", "https://a b": "", "": "",
		"https://a/" + strings.Repeat("x", 2048): "",
	} {
		g.Expect(webLink(link)).To(Equal(want), "link %.40q", link)
	}
	g.Expect(annotationText(strings.Repeat("é", 2048))).To(HaveLen(4096))
	g.Expect(annotationText(strings.Repeat("é", 2049))).To(Equal(strings.Repeat("é", 2047) + "…"))
}

// spans returns severity, start and end of alerts, in minutes after noon.
func spans(alerts []map[string]any) []string {
	var found []string
	for _, alert := range alerts {
		labels, _ := alert["labels"].(map[string]any)
		text, _ := labels["severity"].(string)
		for _, field := range []string{"startsAt", "endsAt"} {
			stamp, _ := alert[field].(string)
			when, _ := time.Parse(time.RFC3339, stamp)
			text += " " + when.Sub(noon).String()
		}
		found = append(found, text)
	}
	return found
}

func TestTimesOfAlerts(t *testing.T) {
	changed := func(to v1alpha1.Severity, minutes float64) v1alpha1.Transition {
		return v1alpha1.Transition{Type: v1alpha1.TransitionSeverityChanged, Time: *at(minutes), Severity: to}
	}
	resolve := func(i *v1alpha1.Incident, minutes float64) {
		i.Status.State, i.Status.ResolvedTime = v1alpha1.IncidentResolved, at(minutes)
		i.Status.Timeline = append(i.Status.Timeline, v1alpha1.Transition{Type: v1alpha1.TransitionResolved, Time: *at(minutes)})
	}
	escalate := func(i *v1alpha1.Incident) {
		i.Status.Alert.Severity = "critical"
		i.Status.Timeline = append(i.Status.Timeline, changed("critical", 2))
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.Incident)
		at     float64
		want   []string
	}{
		"open":          {func(*v1alpha1.Incident) {}, 1, []string{"warning -1m0s 16m0s"}},
		"open for days": {func(*v1alpha1.Incident) {}, 3000, []string{"warning -1m0s 50h15m0s"}},
		"the sender's clock is ahead": {
			func(i *v1alpha1.Incident) { i.Status.Episode.StartTime = *at(600) }, 1, []string{"warning 0s 16m0s"},
		},
		"the clocks of all replicas were ahead": {func(i *v1alpha1.Incident) {
			i.Status.Episode.StartTime, i.Status.OpenedTime = *at(600), at(600)
		}, 1, []string{"warning 1m0s 16m0s"}},
		"the severity changed":          {escalate, 3, []string{"critical -1m0s 18m0s", "warning -1m0s 2m0s"}},
		"the severity changed long ago": {escalate, 17, []string{"critical -1m0s 32m0s"}},
		"the severity changed and came back": {func(i *v1alpha1.Incident) {
			escalate(i)
			i.Status.Alert.Severity = "warning"
			i.Status.Timeline = append(i.Status.Timeline, changed("warning", 3))
		}, 4, []string{"warning -1m0s 19m0s", "critical -1m0s 3m0s"}},
		"resolved":          {func(i *v1alpha1.Incident) { resolve(i, 5) }, 6, []string{"warning -1m0s 5m0s"}},
		"resolved long ago": {func(i *v1alpha1.Incident) { resolve(i, 5) }, 20, nil},
		"resolved this moment": {
			func(i *v1alpha1.Incident) { resolve(i, 6) }, 6, []string{"warning -1m0s 5m59s"},
		},
		"resolved as it started": {func(i *v1alpha1.Incident) {
			i.Status.Episode.StartTime = *at(0)
			resolve(i, 0)
		}, 6, []string{"warning -1ms 0s"}},
		"resolved by an alert of another severity": {func(i *v1alpha1.Incident) {
			resolve(i, 5)
			i.Status.Alert.Severity = "info"
		}, 6, []string{"warning -1m0s 5m0s"}},
		"resolved with a timeline that tells nothing": {func(i *v1alpha1.Incident) {
			resolve(i, 5)
			i.Status.Timeline = nil
		}, 6, []string{"warning -1m0s 5m0s"}},
		"reopened with another severity": {func(i *v1alpha1.Incident) {
			resolve(i, 5)
			i.Status.State, i.Status.OpenedTime, i.Status.Alert.Severity = v1alpha1.IncidentOpen, at(8), "error"
			i.Status.Episode = &v1alpha1.Episode{Number: 2, StartTime: *at(8)}
			i.Status.Timeline = append(i.Status.Timeline, v1alpha1.Transition{
				Type: v1alpha1.TransitionReopened, Time: *at(8), Severity: "error",
			})
		}, 9, []string{"error 8m0s 24m0s", "warning 0s 5m0s"}},
		"without a status": {func(i *v1alpha1.Incident) { i.Status = v1alpha1.IncidentStatus{} }, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			incident := openIncident()
			c.change(incident)
			NewWithT(t).Expect(spans(postedAt(t, incident, &Settings{}, c.at))).To(Equal(c.want))
		})
	}
}

// firing returns the labels of the set that fires at noon; empty if none does.
func firing(incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, target *Target) string {
	if wanted := target.Want(incident, integration, nil, noon); wanted.Firing() != "" {
		return wanted.sets[0].labels
	}
	return ""
}

func TestSelection(t *testing.T) {
	g := NewWithT(t)
	target := targetOf(&Settings{})
	target.Integrations, target.Severities = labels.SelectorFromSet(labels.Set{"team": "core"}), []v1alpha1.Severity{"critical"}
	for name, c := range map[string]struct {
		spec   v1alpha1.WebhookIntegrationSpec
		labels map[string]string
		want   string
	}{
		"selected":                   {labels: map[string]string{"team": "core"}},
		"not selected":               {want: v1alpha1.ReasonNotSelected},
		"never":                      {spec: v1alpha1.WebhookIntegrationSpec{Forward: v1alpha1.ForwardNever}, want: v1alpha1.ReasonForwardNever},
		"from Alertmanager":          {spec: v1alpha1.WebhookIntegrationSpec{Preset: "alertmanager"}, want: v1alpha1.ReasonFromAlertmanager},
		"from vmalert, automatic":    {spec: v1alpha1.WebhookIntegrationSpec{Preset: "vmalert", Forward: v1alpha1.ForwardAuto}, want: v1alpha1.ReasonFromAlertmanager},
		"from Alertmanager, always":  {spec: v1alpha1.WebhookIntegrationSpec{Preset: "alertmanager", Forward: v1alpha1.ForwardAlways}, labels: map[string]string{"team": "core"}},
		"always, but not configured": {spec: v1alpha1.WebhookIntegrationSpec{Forward: v1alpha1.ForwardAlways}, want: v1alpha1.ReasonNotSelected},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			integration := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Labels: c.labels}, Spec: c.spec}
			reason := ""
			if exclusion := target.ExcludesIntegration(integration); exclusion != nil {
				reason = exclusion.Condition
			}
			g.Expect(reason).To(Equal(c.want))
		})
	}
	incident, integration := openIncident(), &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "core"}}}
	g.Expect(firing(incident, integration, target)).To(BeEmpty(), "the severity is not selected")
	incident.Status.Alert.Severity = v1alpha1.SeverityCritical
	g.Expect(firing(incident, integration, target)).NotTo(BeEmpty())
}

func TestADefaultLabelOfTheIntegrationWinsOverTheSenders(t *testing.T) {
	g := NewWithT(t)
	incident, target := openIncident(), targetOf(&Settings{AlertLabels: []string{"team", "tier"}})
	incident.Status.Alert.Labels = map[string]string{"team": "ceo", "tier": "one"}
	integration := &v1alpha1.WebhookIntegration{}
	labels := func() string { return firing(incident, integration, target) }
	g.Expect(labels()).To(ContainSubstring(`"team":"ceo","tier":"one"`))
	integration.Spec.Defaults = &v1alpha1.AlertDefaults{Labels: map[string]v1alpha1.LabelValue{"team": "shop", "other": "x"}}
	g.Expect(labels()).To(ContainSubstring(`"team":"shop","tier":"one"`))
	g.Expect(labels()).NotTo(ContainSubstring("other"))
}

func TestAutoForwardsNothingThatCameFromAlertmanager(t *testing.T) {
	g := NewWithT(t)
	incident, target := openIncident(), targetOf(&Settings{})
	from := func(preset string, spec v1alpha1.WebhookIntegrationSpec) string {
		incident.Status.Alert.Preset = preset
		return firing(incident, &v1alpha1.WebhookIntegration{Spec: spec}, target)
	}
	auto := v1alpha1.WebhookIntegrationSpec{Preset: "auto"}
	g.Expect(from("vmalert", auto)).To(BeEmpty())
	g.Expect(from("alertmanager", auto)).To(BeEmpty())
	g.Expect(from("zabbix", auto)).NotTo(BeEmpty())
	for _, preset := range []string{"alertmanager", "vmalert"} {
		incident.Spec.DedupKey = preset + "/down"
		g.Expect(from("", auto)).NotTo(BeEmpty(), "a key of the sender's own")
	}
	g.Expect(from("vmalert", v1alpha1.WebhookIntegrationSpec{Preset: "auto", Forward: v1alpha1.ForwardAlways})).NotTo(BeEmpty())
}

func TestOnlyTransitionsAreUrgent(t *testing.T) {
	allowed := []string{"team"}
	for name, c := range map[string]struct {
		change   func(*v1alpha1.IncidentStatus)
		received time.Time
		urgent   bool
	}{
		"one more alert": {func(s *v1alpha1.IncidentStatus) {
			s.AlertCount++
			s.Alert.Title = "Disk fuller"
			s.LastAlertTime = at(2)
		}, time.Time{}, false},
		"resolved": {func(s *v1alpha1.IncidentStatus) {
			s.State, s.ResolvedTime = v1alpha1.IncidentResolved, at(3)
			s.Timeline = append(s.Timeline, v1alpha1.Transition{Type: v1alpha1.TransitionResolved, Time: *at(3)})
		}, noon.Add(3 * time.Minute), true},
		"another type":             {func(s *v1alpha1.IncidentStatus) { s.Alert.Type = "Disk" }, time.Time{}, true},
		"another label":            {func(s *v1alpha1.IncidentStatus) { s.Alert.Labels = map[string]string{"pod": "x"} }, time.Time{}, false},
		"another label to forward": {func(s *v1alpha1.IncidentStatus) { s.Alert.Labels = map[string]string{"team": "x"} }, time.Time{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before, after := openIncident(), openIncident()
			c.change(&after.Status)
			received, urgent := Urgent(before, after, allowed)
			g.Expect(urgent).To(Equal(c.urgent))
			g.Expect(received).To(BeTemporally("==", c.received))
		})
	}
}

// Of an integration that has no place in the cache, nobody knows what mutes its Incidents.
func TestWhatIsMutedStaysSoWhileNobodyKnowsMore(t *testing.T) {
	muted := &v1alpha1.Incident{}
	muted.Status.State, muted.Status.Mute = v1alpha1.IncidentOpen, &v1alpha1.Mute{EndTime: new(v1alpha1.NewTimestamp(time.Unix(100, 0)))}
	for sentence, test := range map[string]struct {
		incident *v1alpha1.Incident
		at       int64
		want     *fold.Muted
	}{
		"it is muted":                          {muted, 99, fold.MutedBy(&muted.Status)},
		"the window that mutes it ends":        {muted, 100, nil},
		"it was not muted, so it is forwarded": {&v1alpha1.Incident{}, 99, nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			whi := &v1alpha1.WebhookIntegration{}
			integrations.MakeStub(whi, true)
			NewWithT(t).Expect(mutedBy(test.incident, whi, nil, time.Unix(test.at, 0))).To(Equal(test.want))
		})
	}
}
