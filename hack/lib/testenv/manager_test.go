package testenv

import (
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"
)

// TestANewTokenIsWaitedFor: a manager rejects a token until its watch has shown the integration, however long that takes.
func TestANewTokenIsWaitedFor(t *testing.T) {
	g := NewWithT(t)
	answers := []int{http.StatusServiceUnavailable, http.StatusUnauthorized, http.StatusUnauthorized, http.StatusAccepted}
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" && r.URL.Query().Get("dryRun") == "true" {
			w.WriteHeader(answers[asked])
			asked++
		}
	}))
	defer server.Close()
	m := &Manager{Process: NewProcess(nil, "true"), WebhookURL: server.URL + "/"}
	g.Expect(m.WaitKnown(t.Context(), "token")).To(Succeed())
	g.Expect(asked).To(Equal(len(answers)))

	server.Close()
	g.Expect(m.Start()).To(Succeed())
	g.Expect(m.WaitKnown(t.Context(), "token")).To(Succeed(), "a manager that has exited knows nothing")
}
