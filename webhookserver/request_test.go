package webhookserver

import (
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
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
