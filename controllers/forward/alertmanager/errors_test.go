package alertmanager

import (
	"context"
	"encoding/json"
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
		server := &Server{URL: parsed(t, url)}
		client, err := server.NewClient(server.hostPort(), new(net.Dialer))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		_, err = client.PostAlerts(t.Context(), []json.RawMessage{}, time.Second)
		NewWithT(t).Expect(Describe(err)).To(Equal(want), fmt.Sprint(err))
	}
	for want, err := range map[string]error{
		"the host name is not resolved":   fmt.Errorf("x: %w", &net.DNSError{Name: "am", IsNotFound: true}),
		"no answer in time":               fmt.Errorf("x: %w", context.DeadlineExceeded),
		"http_config cannot be used":      ErrNoClient,
		"the manager's log has the error": io.ErrUnexpectedEOF,
	} {
		NewWithT(t).Expect(Describe(err)).To(Equal(want))
	}
}
