package webhookserver

import (
	"cmp"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// A typing error in dryRun must not store the alert of a test, and a sender's own parameters must not stop its alerts.
func TestTheQuery(t *testing.T) {
	for query, status := range map[string]int{
		"dryRun=true":                   http.StatusOK,
		"dryrun=true":                   http.StatusOK,
		"DRYRUN=1":                      http.StatusOK,
		"dry%52un=tru%65":               http.StatusOK,
		"utm_source=x&dryRun=true":      http.StatusOK,
		"utm_source=x?dryRun=true":      http.StatusOK, // a second address was appended
		"a=b;dryRun=true":               http.StatusOK, // url.ParseQuery drops both
		"x=%zz&dryRun=true":             http.StatusOK,
		"dryRun=true&dryrun=TRUE":       http.StatusOK,
		"dryRun=true&dryrun=false":      http.StatusBadRequest,
		"dryrun":                        http.StatusBadRequest,
		"dryrun=%zz":                    http.StatusBadRequest,
		"dry-run=true":                  http.StatusBadRequest,
		"dry_run=true":                  http.StatusBadRequest,
		"dry%20run=true":                http.StatusBadRequest,
		"dry=true":                      http.StatusBadRequest,
		"dryRn=true":                    http.StatusBadRequest,
		"dyrRun=true":                   http.StatusBadRequest,
		"dryruns=true":                  http.StatusBadRequest,
		"dryRun[]=true":                 http.StatusBadRequest,
		"isDryRun=true":                 http.StatusBadRequest,
		"a=1&b=2;ddryrun=true":          http.StatusBadRequest,
		"":                              http.StatusAccepted,
		"dryRun=false":                  http.StatusAccepted,
		"run=1&rerun=2&date=3":          http.StatusAccepted,
		"duration=5&dry-cough=1&driver": http.StatusAccepted,
		"utm_campaign=dryRun&%zz&=&;":   http.StatusAccepted,
	} {
		t.Run(query, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			response := b.post(testPath+"?"+query, firing)
			g.Expect(response.StatusCode).To(Equal(status))
			if status == http.StatusAccepted {
				g.Expect(b.store.Stored()).To(HaveLen(1))
				return
			}
			g.Expect(b.store.Stored()).To(BeEmpty())
			if status == http.StatusBadRequest {
				g.Expect(decode[problemBody](g, response).Detail).To(ContainSubstring("dryRun"))
			}
		})
	}
}

// Parameters that are named like fields are read where the body has none. A name that resembles a field is refused.
func TestParametersAreDefaults(t *testing.T) {
	const body = `{"title":"Disk full"}`
	for query, test := range map[string]struct {
		body   string
		status int // 0: accepted
		want   v1alpha1.Alert
	}{
		"severity=critical&dedup_key=k":                    {want: v1alpha1.Alert{DedupKey: "k", AlertContent: v1alpha1.AlertContent{Title: "Disk full", Severity: "critical"}}},
		"dedupKey=k&title=Other&priority=P1&x=1&dryRunner": {status: http.StatusBadRequest},
		"dedupKey=k&title=Other&priority=P1&x=1": {
			want: v1alpha1.Alert{DedupKey: "k", AlertContent: v1alpha1.AlertContent{Title: "Disk full", Severity: "critical"}}},
		"status=resolved&dedup_key=k": {
			want: v1alpha1.Alert{DedupKey: "k", Status: v1alpha1.AlertResolved, AlertContent: v1alpha1.AlertContent{Title: "Disk full"}}},
		"status=resolved&dedup_key=x": {body: `{"title":"Disk full","status":"firing","dedup_key":"k"}`,
			want: v1alpha1.Alert{DedupKey: "k", AlertContent: v1alpha1.AlertContent{Title: "Disk full"}}},
		"hostname=db-1&region=eu&hostname=db-1&severity=&dedup_key=k": {
			want: v1alpha1.Alert{DedupKey: "k", AlertContent: v1alpha1.AlertContent{Title: "Disk full", Hostname: "db-1", Region: "eu"}}},
		"severtiy=critical":            {status: http.StatusBadRequest},
		"labels=a":                     {status: http.StatusBadRequest},
		"starts_at=now":                {status: http.StatusBadRequest},
		"hostname=a&host_name=b":       {status: http.StatusBadRequest},
		"dedup_key=k&utm=x&team=y&%zz": {want: v1alpha1.Alert{DedupKey: "k", AlertContent: v1alpha1.AlertContent{Title: "Disk full"}}},
	} {
		t.Run(query, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			response := b.post(testPath+"?"+query, cmp.Or(test.body, body))
			if test.status != 0 {
				g.Expect(response.StatusCode).To(Equal(test.status))
				g.Expect(decode[problemBody](g, response).Detail).To(HaveSuffix("Nothing was stored."))
				g.Expect(b.store.Stored()).To(BeEmpty())
				return
			}
			g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
			got := b.store.Stored()[0].Alerts[0]
			test.want.ID, test.want.IncidentName, test.want.Origins = got.ID, got.IncidentName, got.Origins
			test.want.Status = cmp.Or(test.want.Status, v1alpha1.AlertFiring)
			g.Expect(got).To(Equal(test.want))
		})
	}
}

// The alerts of a list are of different Incidents, and a signature does not include the query.
func TestDefaultsOfListsAndOfSignedRequests(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	b.post(testPath+"?dedup_key=k&severity=info", `[{"title":"a"},{"title":"b","severity":"error"}]`)
	alerts := b.store.Stored()[0].Alerts
	g.Expect([]v1alpha1.Severity{alerts[0].Severity, alerts[1].Severity}).To(Equal([]v1alpha1.Severity{"info", "error"}))
	g.Expect(alerts[0].DedupKey).NotTo(Or(Equal("k"), Equal(alerts[1].DedupKey)))

	signed := integration("team-a", "prometheus")
	signed.Spec.Verify = &v1alpha1.Verification{}
	b.tokens.set(signed)
	response := b.post(testPath+"?status=resolved", firing)
	g.Expect(response.StatusCode).To(BeNumerically(">=", http.StatusBadRequest))
	g.Expect(b.store.Stored()).To(HaveLen(1))
}
