package webhookserver

import (
	"encoding/json"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// answerTo posts a body to an integration with the mapping and returns what was stored and the answer.
func answerTo(
	t *testing.T, preset string, m *v1alpha1.Mapping, target, body string,
) (alerts []v1alpha1.Alert, answer acceptance, code int) {
	t.Helper()
	g := NewWithT(t)
	b := newBench()
	w := integration("team-a", "prometheus", testToken)
	w.Spec.Preset, w.Spec.Mapping = preset, m
	b.tokens.set(w)
	response := b.post(target, body)
	if response.StatusCode < http.StatusBadRequest {
		g.Expect(json.NewDecoder(response.Body).Decode(&answer)).To(Succeed())
	}
	for _, event := range b.store.Stored() {
		alerts = append(alerts, event.Spec.Alerts...)
	}
	return alerts, answer, response.StatusCode
}

func TestAListOfObjectsIsABatch(t *testing.T) {
	g := NewWithT(t)
	alerts, answer, code := answerTo(t, "", nil, testPath, `[{"title":"a","dedup_key":"1"},{"title":"b","severity":"odd"}]`)
	g.Expect(code).To(Equal(http.StatusAccepted))
	g.Expect(alerts).To(HaveLen(2))
	g.Expect(answer.Alerts).To(HaveLen(2))
	for i := range alerts {
		g.Expect(answer.Alerts[i].ID).To(Equal(alerts[i].ID))
		g.Expect(answer.Alerts[i].DedupKey).To(Equal(alerts[i].DedupKey))
		g.Expect(answer.Alerts[i].Incident).To(Equal("team-a/" + alerts[i].IncidentName))
	}
	g.Expect(answer.Warnings).To(ConsistOf(HaveField("Field", "[1].severity")))
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

func TestDroppedAlertsAreAcceptedAndNotStored(t *testing.T) {
	g := NewWithT(t)
	drop := &v1alpha1.Mapping{Drop: `alert.title == "noise"`}
	alerts, answer, code := answerTo(t, "", drop, testPath, `[{"title":"noise"},{"title":"signal"}]`)
	g.Expect(code).To(Equal(http.StatusAccepted))
	g.Expect(alerts).To(ConsistOf(HaveField("Title", "signal")))
	g.Expect(answer.Alerts[0]).To(Equal(acceptedAlert{Dropped: true}))
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
