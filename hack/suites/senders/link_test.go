//go:build slow

package senders

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
)

// link is the way from Prometheus to Alertmanager, which can be cut.
type link struct {
	*httptest.Server
	cut atomic.Bool
}

func startLink(alertmanager string) *link {
	l := &link{}
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: alertmanager})
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if l.cut.Load() {
			panic(http.ErrAbortHandler) // no answer, and the connection is gone
		}
		forward.ServeHTTP(w, request)
	}))
	return l
}
