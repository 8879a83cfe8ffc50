package webhookserver

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// keyed is a mapping whose key is another one than the payload rules would read.
func keyed() *v1alpha1.Mapping {
	return &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{DedupKey: `alert.check.id`, Status: `alert.check.state`}}
}

// TestWhatRanOutOfTimeIsNotAcknowledged lets a resolve run out of time: without its key it would match nothing, and the
// Incident would stay open for ever.
func TestWhatRanOutOfTimeIsNotAcknowledged(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	w := integration("team-a", "prometheus")
	w.Spec.Mapping = keyed()
	b.tokens.set(w)
	const resolve = `{"check":{"id":"disk","state":"resolved"}}`

	b.evaluation = 0
	response := b.post(testPath, resolve)
	g.Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
	g.Expect(response.Header.Get("Retry-After")).NotTo(BeEmpty())
	g.Expect(decode[problemBody](g, response).kind()).To(Equal("mapping-timeout"))
	g.Expect(b.store.Stored()).To(BeEmpty())
	g.Expect(b.reports.reasons).To(ConsistOf("MappingTimeout"))

	b.evaluation = time.Minute
	g.Expect(b.post(testPath, resolve).StatusCode).To(Equal(http.StatusAccepted))
	alert := b.store.Stored()[0].Alerts[0]
	g.Expect(alert.DedupKey).To(Equal("disk"))
	g.Expect(alert.Status).To(Equal(v1alpha1.AlertResolved))
}

func TestAFailureForGoodIsCountedAndReported(t *testing.T) {
	g := NewWithT(t)
	counter := mappingFailures.WithLabelValues("team-a", "prometheus", "dedupKey")
	before := testutil.ToFloat64(counter)
	_, answer, code := answerTo(t, "", keyed(), testPath, `[{"check":{"state":"resolved"}},{"check":{"id":"x","state":"resolved"}}]`)
	g.Expect(code).To(Equal(http.StatusAccepted))
	g.Expect(testutil.ToFloat64(counter)).To(Equal(before + 1))
	g.Expect(answer.Warnings).To(ContainElements(
		And(HaveField("Field", "[0].dedup_key"), HaveField("Detail", ContainSubstring("failed"))),
		And(HaveField("Field", "[0].dedup_key"), HaveField("Detail", ContainSubstring("matches no incident")))))

	t.Log("a dry run counts nothing")
	_, _, code = answerTo(t, "", keyed(), testPath+"?dryRun=true", `{"check":{"state":"resolved"}}`)
	g.Expect(code).To(Equal(http.StatusOK))
	g.Expect(testutil.ToFloat64(counter)).To(Equal(before + 1))
}

func TestFailuresAreReportedOnceAMinuteAndAllAreCounted(t *testing.T) {
	g := NewWithT(t)
	now := noon
	r := newReporter(nil, nil, logr.Discard())
	r.health = timeFunc(func() time.Time { return now })
	w := integration("team-a", "one")
	w.Generation = 2
	long := mapping.Failure{Field: "dedupKey", Expression: strings.Repeat("x", 2000), Message: "why", Count: 2}
	other := mapping.Failure{Field: "title", Expression: "alert.t", Message: "why not", Count: 5}

	r.reportFailures(w, []mapping.Failure{long, other})
	reported := func() *v1alpha1.MappingFailure { // since the last call
		return takePending[*v1alpha1.MappingFailure](r, w, "lastMappingFailure")
	}
	first := reported()
	g.Expect(first.Field).To(Equal("dedupKey"))
	g.Expect([]rune(first.Expression)).To(HaveLen(maxFailedExpression))
	g.Expect(first.Count).To(BeEquivalentTo(7))
	g.Expect(first.ObservedGeneration).To(BeEquivalentTo(2))
	w.Status.LastMappingFailure = first

	now = now.Add(reportInterval / 2)
	r.reportFailures(w, []mapping.Failure{other})
	g.Expect(reported()).To(BeNil(), "within the minute")
	now = now.Add(reportInterval)
	r.reportFailures(w, []mapping.Failure{other})
	g.Expect(reported().Count).To(BeEquivalentTo(17))

	t.Log("after a change of the spec counting begins anew")
	now = now.Add(reportInterval)
	w.Generation = 3
	r.reportFailures(w, []mapping.Failure{other})
	g.Expect(reported().Count).To(BeEquivalentTo(5))

	t.Log("another replica has just reported")
	now = now.Add(reportInterval)
	w.Status.LastMappingFailure = &v1alpha1.MappingFailure{Count: 9, Time: v1alpha1.NewTimestamp(now), ObservedGeneration: 3}
	r.reportFailures(w, []mapping.Failure{other})
	g.Expect(reported()).To(BeNil())

	t.Log("a report of the future, which a wrong clock has written, does not count")
	w.Status.LastMappingFailure.Time = v1alpha1.NewTimestamp(now.Add(time.Hour / 2))
	r.reportFailures(w, []mapping.Failure{other})
	g.Expect(reported()).NotTo(BeNil())
}

// TestAFailingMappingShowsInTheCluster posts to a server on the control plane.
func TestAFailingMappingShowsInTheCluster(t *testing.T) {
	g := NewWithT(t)
	c := startManager(t)
	w, token := c.integrate(t, "checks")
	c.amend(t, w, func(spec *v1alpha1.WebhookIntegrationSpec) { spec.Mapping = keyed() })
	g.Eventually(func() string {
		_, body := c.send(t, token, `{"check":{"state":"resolved"}}`)
		return body
	}, "10s", "50ms").Should(ContainSubstring("no such key: id"))
	g.Eventually(func() *v1alpha1.MappingFailure {
		var read v1alpha1.WebhookIntegration
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(w), &read)).To(Succeed())
		return read.Status.LastMappingFailure
	}, "10s", "50ms").Should(And(
		HaveField("Field", "dedupKey"), HaveField("Expression", "alert.check.id"), HaveField("Count", BeNumerically(">", 0)),
		HaveField("ObservedGeneration", w.Generation)))
	stored := c.listEvents(t)
	newest := slices.MaxFunc(stored, func(a, b v1alpha1.AlertEvent) int { return cmp.Compare(a.Name, b.Name) })
	g.Expect(newest.Alerts[0].Status).To(Equal(v1alpha1.AlertResolved))
	encoded, err := json.Marshal(c.logs.String())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(encoded)).NotTo(ContainSubstring("token-of-checks-0123"))
}
