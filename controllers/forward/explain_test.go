package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestAFailureIsDescribedByItsKind(t *testing.T) {
	answering := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, fmt.Sprint("request ", r.RemoteAddr), code)
		}
	}
	encrypted := httptest.NewTLSServer(answering(http.StatusOK))
	defer encrypted.Close()
	encrypted.Config.ErrorLog = nil
	closed := httptest.NewServer(answering(http.StatusOK))
	closed.Close()
	notFound := httptest.NewServer(answering(http.StatusNotFound))
	defer notFound.Close()
	own := httptest.NewServer(answering(599))
	defer own.Close()
	for url, want := range map[string]string{
		notFound.URL: "HTTP 404 Not Found", own.URL: "HTTP 599", closed.URL: "connection refused", encrypted.URL: "the certificate is not valid",
	} {
		config, err := parseConfig([]byte("alertmanagers: [{url: '"+url+"'}]"), "")
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		target := &config.Alertmanagers[0]
		client, err := newClient(target, hostPort(target.url), new(net.Dialer).DialContext)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		_, err = client.send(t.Context(), time.Second, http.MethodPost, "alerts", nil, []string{}, nil)
		NewWithT(t).Expect(describeFailure(err)).To(Equal(want), fmt.Sprint(err))
	}
	for want, err := range map[string]error{
		"the host name is not resolved":   fmt.Errorf("x: %w", &net.DNSError{Name: "am", IsNotFound: true}),
		"no answer in time":               fmt.Errorf("x: %w", context.DeadlineExceeded),
		"http_config cannot be used":      errNoClient,
		"the manager's log has the error": io.ErrUnexpectedEOF,
	} {
		NewWithT(t).Expect(describeFailure(err)).To(Equal(want))
	}
}

// Answers that alternate cause no writes of the condition.
func TestACauseStaysWhileItIsSeen(t *testing.T) {
	g := NewWithT(t)
	var c cause
	now := noon
	see := func(code int) string {
		now = now.Add(failingAfter / 2)
		c.see(errors.Join(&answerError{code: code}), now)
		return c.text
	}
	g.Expect(see(503)).To(Equal("HTTP 503 Service Unavailable"))
	for range 10 {
		g.Expect(see(502)).To(Equal("HTTP 503 Service Unavailable"))
		g.Expect(see(503)).To(Equal("HTTP 503 Service Unavailable"))
	}
	see(404)
	g.Expect(see(404)).To(Equal("HTTP 404 Not Found"), "it lasts")
}
