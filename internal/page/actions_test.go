package page

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/silences"
)

// integrationOf is the integration of incidentNamed, with a condition Forwarded.
func integrationOf(namespace string, status metav1.ConditionStatus, reason, message string) *v1alpha1.WebhookIntegration {
	return &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mon"},
		Status: v1alpha1.WebhookIntegrationStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionForwarded, Status: status, Reason: reason, Message: message}}},
	}
}

// silence requests a silence for Incident a, and returns a function that returns the next line of the answer.
func silence(t *testing.T, s *Server) (next func() actionResult) {
	t.Helper()
	return act(t, s, `{"action":"silence","for":"2h","incidents":[{"namespace":"shop","name":"a"}]}`)
}

func act(t *testing.T, s *Server, body string) (next func() actionResult) {
	t.Helper()
	g := NewWithT(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base()+"api/actions", strings.NewReader(body))
	g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+s.owner().key)
	response, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = response.Body.Close() })
	g.Expect(response.StatusCode).To(Equal(http.StatusOK))
	lines := bufio.NewScanner(response.Body)
	return func() (line actionResult) {
		t.Helper()
		g.Expect(lines.Scan()).To(BeTrue())
		g.Expect(json.Unmarshal(lines.Bytes(), &line)).To(Succeed())
		return line
	}
}

func TestASilenceIsDoneWhenAlertmanagerHasIt(t *testing.T) {
	g := NewWithT(t)
	incident := incidentNamed("shop", "a")
	s, c := start(t, "", incident, integrationOf("shop", metav1.ConditionTrue, v1alpha1.ReasonForwarding, ""))
	next := silence(t, s)
	g.Expect(next().Result).To(Equal(resultRequested))
	var events v1alpha1.AlertEventList
	g.Expect(c.List(t.Context(), &events)).To(Succeed())
	g.Expect(events.Items).To(HaveLen(1))
	g.Expect(events.Items[0].Spec.Report.SilenceFor.Duration).To(Equal(2 * time.Hour))

	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(incident), incident)).To(Succeed())
	until := time.Now().Add(2 * time.Hour).Truncate(time.Second).UTC()
	incident.Status.Silence = &v1alpha1.Silence{By: "maria", EndTime: v1alpha1.NewTimestamp(until)}
	incident.Status.SilencedBy = incident.Status.Silence.DeepCopy()
	incident.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSilenced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSilenced,
		Message: "maria silenced the incident in Alertmanager until " + until.Format(time.RFC3339) + "."}}
	g.Expect(c.Update(t.Context(), incident)).To(Succeed())
	g.Expect(next()).To(And(HaveField("Result", resultDone), HaveField("Error", "")))
}

func TestNothingIsSilencedThatIsNotForwarded(t *testing.T) {
	g := NewWithT(t)
	s, c := start(t, "", incidentNamed("shop", "a"),
		integrationOf("shop", metav1.ConditionFalse, v1alpha1.ReasonForwardNever, "spec.forward is Never."))
	g.Expect(silence(t, s)().Error).To(ContainSubstring("not forwarded to an Alertmanager: spec.forward is Never."))
	var events v1alpha1.AlertEventList
	g.Expect(c.List(t.Context(), &events)).To(Succeed())
	g.Expect(events.Items).To(BeEmpty())
}

// A request for many silences waits as one does, and ends when nobody listens any more.
func TestManySilencesAreAwaitedAtOnce(t *testing.T) {
	g := NewWithT(t)
	gone := incidentNamed("shop", "gone")
	var all []client.Object
	requested := silences.NewBatch(time.Hour)
	requested.Add(gone)
	for i := range maxActionIncidents - 1 {
		incident := incidentNamed("shop", fmt.Sprint("a", i))
		all = append(all, incident)
		requested.Add(incident)
	}
	s, _ := start(t, "", all...)
	ctx, leave := context.WithCancel(t.Context())
	recorder := &listener{ResponseRecorder: httptest.NewRecorder(), lines: make(chan string, 1)}
	before, done := runtime.NumGoroutine(), make(chan bool)
	go func() {
		s.await(ctx, &s.owner().caller, requested, newLines(recorder))
		close(done)
	}()
	g.Eventually(recorder.lines, "5s").Should(Receive(And(ContainSubstring(`"gone"`), ContainSubstring("not in the list any more"))))
	g.Expect(runtime.NumGoroutine() - before).To(BeNumerically("<", 20))
	g.Expect(done).NotTo(BeClosed())
	leave()
	g.Eventually(done, "5s").Should(BeClosed())
	g.Expect(recorder.lines).To(BeEmpty())
}

// listener has the lines of an answer.
type listener struct {
	*httptest.ResponseRecorder
	lines chan string
}

func (l *listener) Write(line []byte) (int, error) {
	l.lines <- string(line)
	return len(line), nil
}

// An acknowledgement for some time is none of a silence: it needs no Alertmanager.
func TestActionsSayHowLongAndWho(t *testing.T) {
	for body, want := range map[string]v1alpha1.Report{
		`{"action":"ack","for":"4h","comment":"x",`: {Status: v1alpha1.AlertAcknowledged, AcknowledgeFor: &metav1.Duration{Duration: 4 * time.Hour}, Comment: "x"},
		`{"action":"ack","for":"1d",`:               {Status: v1alpha1.AlertAcknowledged, AcknowledgeFor: &metav1.Duration{Duration: 24 * time.Hour}},
		`{"action":"ack","for":"",`:                 {Status: v1alpha1.AlertAcknowledged},
		`{"action":"resolve","for":"4h","to":"x",`:  {Status: v1alpha1.AlertResolved},
		`{"action":"assign",`:                       {Status: v1alpha1.AlertAssigned, Assignee: "maria"},
		`{"action":"assign","to":"alex",`:           {Status: v1alpha1.AlertAssigned, Assignee: "alex"},
	} {
		t.Run(body, func(t *testing.T) {
			g := NewWithT(t)
			s, c := start(t, "", incidentNamed("shop", "a"))
			g.Expect(act(t, s, body+`"incidents":[{"namespace":"shop","name":"a"}]}`)().Result).To(Equal(resultRequested))
			var events v1alpha1.AlertEventList
			g.Expect(c.List(t.Context(), &events)).To(Succeed())
			g.Expect(events.Items).To(HaveLen(1))
			want.IncidentName, want.By = "a", "maria"
			g.Expect(*events.Items[0].Spec.Report).To(Equal(want))
		})
	}
	g := NewWithT(t)
	assigned := incidentNamed("shop", "a")
	assigned.Status.Assignee = &v1alpha1.Assignee{Name: "maria"}
	s, _ := start(t, "", assigned)
	g.Expect(act(t, s, `{"action":"assign","incidents":[{"namespace":"shop","name":"a"}]}`)().Result).To(Equal("already assigned to maria"))
	g.Expect(makeRow(assigned).Assignee).To(Equal("maria"))
}
