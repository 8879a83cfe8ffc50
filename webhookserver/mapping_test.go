package webhookserver

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// answerTo posts a body to an integration with the mapping and returns what was stored and the answer.
func answerTo(
	t *testing.T, preset string, m *v1alpha1.Mapping, target, body string,
) (alerts []v1alpha1.Alert, answer acceptance, code int) {
	t.Helper()
	g := NewWithT(t)
	b := newBench()
	w := integration("team-a", "prometheus")
	w.Spec.Preset, w.Spec.Mapping = preset, m
	b.tokens.set(w)
	response := b.post(target, body)
	if response.StatusCode < http.StatusBadRequest {
		g.Expect(json.NewDecoder(response.Body).Decode(&answer)).To(Succeed())
	}
	for _, event := range b.store.Stored() {
		alerts = append(alerts, event.Alerts...)
	}
	return alerts, answer, response.StatusCode
}

func TestAListOfObjectsIsABatch(t *testing.T) {
	g := NewWithT(t)
	alerts, answer, code := answerTo(t, "", nil, testPath, `[{"title":"a","severity":"info","dedup_key":"1"},{"title":"b","severity":"odd"}]`)
	g.Expect(code).To(Equal(http.StatusAccepted))
	g.Expect(alerts).To(HaveLen(2))
	g.Expect(answer.Alerts).To(HaveLen(2))
	for i := range alerts {
		g.Expect(answer.Alerts[i].ID).To(Equal(alerts[i].ID))
		g.Expect(answer.Alerts[i].DedupKey).To(Equal(alerts[i].DedupKey))
		g.Expect(answer.Alerts[i].Incident).To(Equal("team-a/" + alerts[i].IncidentName))
	}
	g.Expect(answer.Warnings).To(ConsistOf(HaveField("Field", "[1].severity"), HaveField("Field", "[1].dedup_key")))
}

func TestAPresetReadsAPayloadOfManyAlerts(t *testing.T) {
	g := NewWithT(t)
	alerts, _, code := answerTo(t, "alertmanager", nil, testPath, `{"version":"4","status":"firing","alerts":[
		{"status":"firing","fingerprint":"f1","labels":{"alertname":"Down"},"startsAt":"2026-01-01T00:00:00Z"},
		{"status":"resolved","fingerprint":"f2","labels":{"alertname":"Slow"}}]}`)
	g.Expect(code).To(Equal(http.StatusAccepted))
	g.Expect(alerts).To(HaveLen(2))
	g.Expect([]v1alpha1.AlertStatus{alerts[0].Status, alerts[1].Status}).To(
		Equal([]v1alpha1.AlertStatus{v1alpha1.AlertFiring, v1alpha1.AlertResolved}))
}

func TestALineOfJSONIsAnAlert(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	response := b.post(testPath, `{"dedup_key":"a"}`+"\n"+`{"dedup_key":"b"}`+"\n", with("Content-Type", "application/x-ndjson"))
	g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
	answer := decode[acceptance](g, response)
	g.Expect(answer.Alerts).To(HaveLen(2))
	g.Expect([]string{answer.Alerts[0].DedupKey, answer.Alerts[1].DedupKey}).To(Equal([]string{"a", "b"}))
}

// A text within a text is read once, with a warning.
func TestJSONThatIsEncodedTwiceHasAWarning(t *testing.T) {
	g := NewWithT(t)
	_, answer, code := answerTo(t, "", nil, testPath, strconv.Quote(firing))
	g.Expect(code).To(Equal(http.StatusAccepted))
	g.Expect(answer.Warnings).To(ContainElement(payload.EncodedTwice))
	_, _, code = answerTo(t, "", nil, testPath, strconv.Quote(strconv.Quote(firing)))
	g.Expect(code).To(Equal(http.StatusBadRequest))
}

func TestTheAnswerNamesThePresetThatAutoChose(t *testing.T) {
	g := NewWithT(t)
	body := `{"event_action": "trigger", "routing_key": "", "dedup_key": "17", "payload": {"summary": "Disk full"}}`
	alerts, answer, code := answerTo(t, "auto", nil, testPath, body)
	g.Expect(code).To(Equal(http.StatusAccepted))
	g.Expect(answer.Preset).To(Equal("pagerduty"))
	g.Expect(answer.Alerts[0].DedupKey).To(Equal("pagerduty/17"))
	g.Expect(alerts[0].Title).To(Equal("Disk full"))
	_, answer, code = answerTo(t, "auto", nil, testPath+"?dryRun=true", `{"title": "Disk full"}`)
	g.Expect(code).To(Equal(http.StatusOK))
	g.Expect(answer.Preset).To(BeEmpty())
}

func TestDroppedAlertsAreAcceptedAndNotStored(t *testing.T) {
	g := NewWithT(t)
	drop := &v1alpha1.Mapping{Drop: `alert.title == "noise"`}
	alerts, answer, code := answerTo(t, "", drop, testPath, `[{"title":"noise"},{"title":"signal"}]`)
	g.Expect(code).To(Equal(http.StatusAccepted))
	g.Expect(alerts).To(ConsistOf(HaveField("Title", "signal")))
	g.Expect(answer.Alerts[0]).To(Equal(acceptedAlert{Dropped: true, DroppedBy: `alert.title == "noise"`}))
	g.Expect(answer.Alerts[1].ID).To(Equal(alerts[0].ID))

	alerts, answer, code = answerTo(t, "", drop, testPath, `{"title":"noise"}`)
	g.Expect(code).To(Equal(http.StatusAccepted))
	g.Expect(alerts).To(BeEmpty())
	g.Expect(answer.Event).To(BeEmpty())
}

func TestAMappingThatDoesNotCompileRefusesNothing(t *testing.T) {
	g := NewWithT(t)
	counter := unusableMappings.WithLabelValues("team-a", "prometheus")
	before := testutil.ToFloat64(counter)
	broken := &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{Title: "nonsense("}}
	alerts, answer, code := answerTo(t, "", broken, testPath, `{"title":"Disk full"}`)
	g.Expect(code).To(Equal(http.StatusAccepted))
	g.Expect(alerts).To(ConsistOf(HaveField("Title", "Disk full")))
	g.Expect(answer.Warnings).NotTo(BeEmpty())
	g.Expect(testutil.ToFloat64(counter)).To(Equal(before + 1))
}

func TestADryRunTellsTheSources(t *testing.T) {
	g := NewWithT(t)
	m := &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{Title: `"Host " + alert.host`}}
	alerts, answer, code := answerTo(t, "", m, testPath+"?dryRun=true", `{"host":"db-1","priority":"P1"}`)
	g.Expect(code).To(Equal(http.StatusOK))
	g.Expect(alerts).To(BeEmpty())
	g.Expect(answer.Alerts[0].Alert.Title).To(Equal("Host db-1"))
	g.Expect(answer.Alerts[0].Sources).To(ContainElements(
		And(HaveField("Field", "title"), HaveField("Expression", `"Host " + alert.host`)),
		And(HaveField("Field", "severity"), HaveField("Key", "priority")),
	))
}

func TestTooManyAlertsAreRefusedAsAWhole(t *testing.T) {
	g := NewWithT(t)
	body := []byte{'['}
	for range v1alpha1.MaxAlertsPerEvent {
		body = append(body, `{"a":1},`...)
	}
	alerts, _, code := answerTo(t, "", nil, testPath, string(body)+`{}]`)
	g.Expect(code).To(Equal(http.StatusRequestEntityTooLarge))
	g.Expect(alerts).To(BeEmpty())
}

func TestThePathOfAlertmanagerTellsTheFormat(t *testing.T) {
	const body = `[{"labels":{"alertname":"DiskFull","severity":"page"},"annotations":{"summary":"Disk full"},
		"startsAt":"2026-05-04T12:00:00Z","endsAt":"2099-05-04T12:04:00Z"}]`
	title := &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{Title: "alert.labels.alertname"}}
	for name, c := range map[string]struct {
		path    string
		mapping *v1alpha1.Mapping
		want    string
	}{
		"without preset and mapping":       {testPath + "/api/v2/alerts", nil, "Disk full"},
		"the integration's mapping":        {testPath + "/api/v2/alerts", title, "DiskFull"},
		"the address itself tells nothing": {testPath, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			alerts, _, _ := answerTo(t, "", c.mapping, c.path, body)
			NewWithT(t).Expect(alerts).To(ConsistOf(HaveField("Title", c.want)))
		})
	}
	g := NewWithT(t)
	alerts, _, _ := answerTo(t, "", nil, testPath+"/api/v2/alerts", body)
	again, _, _ := answerTo(t, "", nil, testPath+"/api/v2/alerts", body)
	g.Expect(again[0].DedupKey).To(Equal(alerts[0].DedupKey))
	g.Expect(alerts[0].ExpiryTime).NotTo(BeNil())
}

// Tocsin → Alertmanager → Tocsin must not go round. The label counts wherever the format has it.
func TestForwardedAlertsAreDropped(t *testing.T) {
	const mine, other = `{"alertname":"A","tocsin_incident":"disk-x"}`, `{"alertname":"B","severity":"info"}`
	for name, c := range map[string]struct{ preset, body string }{
		"alertmanager": {"alertmanager", `{"version":"4","alerts":[
			{"status":"firing","fingerprint":"1","labels":` + mine + `},{"status":"firing","fingerprint":"2","labels":` + other + `}]}`},
		"a resolve": {"alertmanager", `{"version":"4","alerts":[
			{"status":"resolved","fingerprint":"1","labels":` + mine + `},{"status":"firing","fingerprint":"2","labels":` + other + `}]}`},
		"vmalert":           {"vmalert", `[{"labels":` + mine + `},{"labels":` + other + `}]`},
		"grafana":           {"grafana", `{"alerts":[{"labels":` + mine + `,"status":"firing"},{"labels":` + other + `,"status":"firing"}]}`},
		"the payload rules": {"", `[{"title":"A","labels":` + mine + `},{"title":"B","severity":"info","labels":` + other + `}]`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			reason := returnedNotFederated
			if name == "a resolve" {
				reason = returnedOwn
			}
			counter := returnedAlerts.WithLabelValues("team-a", "prometheus", reason)
			before := testutil.ToFloat64(counter)
			alerts, answer, code := answerTo(t, c.preset, nil, testPath+"/api/v2/alerts", c.body)
			g.Expect(code).To(Equal(http.StatusAccepted))
			g.Expect(alerts).To(ConsistOf(HaveField("Labels", HaveKey("alertname"))))
			g.Expect(alerts[0].Labels).NotTo(HaveKey(v1alpha1.ForwardedLabel))
			g.Expect(answer.Alerts[0]).To(Equal(acceptedAlert{Dropped: true}))
			g.Expect(answer.Warnings).To(ConsistOf(
				And(HaveField("Field", "[0].labels"), HaveField("Detail", ContainSubstring("tocsin_incident")))))
			g.Expect(testutil.ToFloat64(counter)).To(Equal(before + 1))
		})
	}
	t.Run("a mapping that leaves the labels out", func(t *testing.T) {
		g := NewWithT(t)
		m := &v1alpha1.Mapping{Alerts: "payload.alerts", Fields: v1alpha1.MappingFields{Title: "alert.labels.alertname", Labels: "{'a': 1}"}}
		alerts, answer, _ := answerTo(t, "", m, testPath, `{"alerts":[{"labels":`+mine+`}]}`)
		g.Expect(alerts).To(BeEmpty())
		g.Expect(answer.Alerts[0].Dropped).To(BeTrue())
	})
	t.Run("only alerts that have it as a label", func(t *testing.T) {
		g := NewWithT(t)
		alerts, _, _ := answerTo(t, "", nil, testPath, `{"title":"tocsin_incident","tocsin_incident":"x","annotations":{"tocsin_incident":"x"}}`)
		g.Expect(alerts).To(HaveLen(1))
	})
}

// A replica whose clock is wrong must not take an alert that fires for one that has ended: what counts is the clock of the
// API server.
func TestAWrongClockEndsNoAlert(t *testing.T) {
	for _, lead := range []time.Duration{-time.Hour, time.Hour} {
		g := NewWithT(t)
		b := newBench()
		right := time.Now()
		b.options.Clock = timeFunc(func() time.Time { return time.Now().Add(lead) })
		b.options.Health = timeFunc(time.Now)
		w := integration("team-a", "prometheus")
		w.Spec.Preset = "vmalert"
		b.tokens.set(w)
		ends := right.Add(4 * time.Minute).Format(time.RFC3339)
		g.Expect(b.post(testPath, `[{"labels":{"a":"b"},"endsAt":"`+ends+`"}]`).StatusCode).To(Equal(http.StatusAccepted))
		stored := b.store.Stored()[0]
		g.Expect(stored.Alerts[0].Status).To(Equal(v1alpha1.AlertFiring), "%s", lead)
		g.Expect(stored.Alerts[0].ExpiryTime).NotTo(BeNil())
		g.Expect(stored.Spec.ReceivedTime.Time).To(BeTemporally("~", right, 10*time.Second))
	}
}

func TestAnOutageOfAToolWithoutSeveritiesIsCritical(t *testing.T) {
	sample, err := os.ReadFile("mapping/presets/uptime-kuma.firing.json")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	resolved, err := os.ReadFile("mapping/presets/uptime-kuma.resolved.json")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	own := &v1alpha1.AlertDefaults{Severity: v1alpha1.SeverityInfo}
	for sentence, test := range map[string]struct {
		preset, body string
		defaults     *v1alpha1.AlertDefaults
		severity     v1alpha1.Severity
	}{
		"a preset that is named":                    {"uptime-kuma", string(sample), nil, v1alpha1.SeverityCritical},
		"a payload that is recognized":              {"", string(sample), nil, v1alpha1.SeverityCritical},
		"the default of the integration goes first": {"uptime-kuma", string(sample), own, ""},
		"a default of something else does not":      {"uptime-kuma", string(sample), &v1alpha1.AlertDefaults{Title: "x"}, v1alpha1.SeverityCritical},
		"a resolve changes no severity":             {"uptime-kuma", string(resolved), nil, ""},
		"without a preset":                          {"none", string(sample), nil, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			w := integration("team-a", "prometheus")
			w.Spec.Preset, w.Spec.Defaults = test.preset, test.defaults
			b.tokens.set(w)
			g.Expect(b.post(testPath, test.body).StatusCode).To(Equal(http.StatusAccepted))
			g.Expect(b.storedAlerts()).To(ConsistOf(HaveField("Severity", test.severity)))
		})
	}
}

func TestWhatIsMadeUpIsTold(t *testing.T) {
	for sentence, test := range map[string]struct {
		body     string
		defaults *v1alpha1.AlertDefaults
		fields   []string
	}{
		"everything is given":           {`{"title":"a","severity":"info","dedup_key":"k"}`, nil, nil},
		"nothing is given":              {`{"x":1}`, nil, []string{"title", "severity", "dedup_key"}},
		"a description makes the title": {`{"description":"a","severity":"info","dedup_key":"k"}`, nil, nil},
		"a severity that is unknown":    {`{"title":"a","severity":"odd","dedup_key":"k"}`, nil, []string{"severity"}},
		"a resolve":                     {`{"status":"resolved","dedup_key":"k"}`, nil, nil},
		"defaults": {
			`{"dedup_key":"k"}`, &v1alpha1.AlertDefaults{Title: "a", Severity: v1alpha1.SeverityInfo}, nil},
		"other names": {`{"text":"a","level":"info","dedupKey":"k"}`, nil, []string{"text", "level", "dedupKey"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			w := integration("team-a", "prometheus")
			w.Spec.Defaults = test.defaults
			b.tokens.set(w)
			var answer acceptance
			g.Expect(json.NewDecoder(b.post(testPath, test.body).Body).Decode(&answer)).To(Succeed())
			var fields []string
			for _, warning := range answer.Warnings {
				fields = append(fields, warning.Field)
			}
			g.Expect(fields).To(ConsistOf(test.fields), "%v", answer.Warnings)
		})
	}
	g := NewWithT(t)
	b := newBench()
	w := integration("team-a", "prometheus")
	w.Spec.AutoResolveAfter = &metav1.Duration{Duration: 90 * time.Minute}
	b.tokens.set(w)
	var answer acceptance
	g.Expect(json.NewDecoder(b.post(testPath, `{"title":"a","severity":"info"}`).Body).Decode(&answer)).To(Succeed())
	g.Expect(answer.Warnings).To(ConsistOf(HaveField("Detail", HaveSuffix("is resolved after 1h30m"))))
}

func TestTheAnswerTellsWhatHasNoEffect(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	effects := func(body string) (effects []string) {
		var answer acceptance
		g.Expect(json.NewDecoder(b.post(testPath, body).Body).Decode(&answer)).To(Succeed())
		for _, alert := range answer.Alerts {
			effects = append(effects, alert.Effect)
		}
		return effects
	}
	g.Expect(effects(`{"status":"resolved","dedup_key":"k"}`)).To(Equal([]string{noEffect}))
	g.Expect(effects(`{"status":"acknowledged","dedup_key":"k"}`)).To(Equal([]string{noEffect}))
	g.Expect(effects(`{"status":"resolved"}`)).To(Equal([]string{noEffect}), "a generated key")
	g.Expect(effects(`[{"status":"resolved","dedup_key":"k"},{"title":"a","dedup_key":"k"},{"status":"resolved","dedup_key":"k"}]`)).
		To(Equal([]string{noEffect, "", ""}))
	g.Expect(effects(`{"status":"resolved","dedup_key":"k"}`)).To(Equal([]string{""}), "the alert that opens it was just accepted")
}

// TestTheFirstAlertsOfAnAlertmanagerSayThatTheyAreNotForwarded looks at the answer to the first request of an integration.
func TestTheFirstAlertsOfAnAlertmanagerSayThatTheyAreNotForwarded(t *testing.T) {
	forwarded := metav1.Condition{Type: v1alpha1.ConditionForwarded, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonForwarding}
	for sentence, c := range map[string]struct {
		change func(w *v1alpha1.WebhookIntegration)
		says   bool
	}{
		"the first ones": {func(*v1alpha1.WebhookIntegration) {}, true},
		"later ones": {func(w *v1alpha1.WebhookIntegration) {
			w.Status.LastReceivedTime = new(v1alpha1.NewTimestamp(time.Now()))
		}, false},
		"forward is Always":        {func(w *v1alpha1.WebhookIntegration) { w.Spec.Forward = v1alpha1.ForwardAlways }, false},
		"nothing is forwarded":     {func(w *v1alpha1.WebhookIntegration) { w.Status.Conditions = nil }, false},
		"they are read without it": {func(w *v1alpha1.WebhookIntegration) { w.Spec.Preset = mapping.None }, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			w := integration("team-a", "prometheus")
			w.Status.Conditions = []metav1.Condition{forwarded}
			c.change(w)
			b.tokens.set(w)
			response := b.post(testPath, groupOfOne)
			body, err := io.ReadAll(response.Body)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
			g.Expect(strings.Contains(string(body), "Tocsin does not forward these alerts")).To(Equal(c.says), string(body))
		})
	}
}
