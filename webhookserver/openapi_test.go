package webhookserver

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestOpenAPIDocumentIsServed(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		recorder := httptest.NewRecorder()
		b.handler.ServeHTTP(recorder, httptest.NewRequest(method, "/openapi.yaml", http.NoBody))
		g.Expect(recorder.Code).To(Equal(http.StatusOK))
		g.Expect(recorder.Header().Get("Content-Type")).To(Equal("application/yaml"))
		g.Expect(recorder.Header().Get("Content-Length")).To(Equal(strconv.Itoa(len(openAPIDocument))))
		if method == http.MethodGet {
			g.Expect(recorder.Body.Bytes()).To(Equal(openAPIDocument))
		}
	}
	recorder := httptest.NewRecorder()
	b.handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/openapi.yaml", strings.NewReader("{}")))
	g.Expect(recorder.Code).To(Equal(http.StatusMethodNotAllowed))
	g.Expect(recorder.Header().Get("Allow")).To(Equal("GET, HEAD"))
}
