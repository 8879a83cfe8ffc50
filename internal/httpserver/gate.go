package httpserver

import (
	"crypto/sha256"
	"net"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/tocsin-dev/tocsin/internal/fair"
)

// Limits of the requests whose tokens are not known yet: the API server is asked about them.
const (
	reviewPlaces  = 2                      // at a time
	reviewPause   = 100 * time.Millisecond // that each takes a place at least: so 20 a second
	reviewWait    = 2 * time.Second        // for a place
	knownTime     = time.Minute            // that a token is known which was accepted
	unknownTime   = 10 * time.Second       // and one that was not
	maxKnown      = 1024                   // tokens of each kind
	challengeBody = "The token is not valid.\n"
)

// Gate protects a handler that has the API server review tokens, and answers 401 if it does not know one: a client without a
// valid token costs the API server at most its part of the 20 reviews that there are in a second. Addresses take turns. What
// waits for too long gets 503. A connection is Busy with a request whose token is known to be permitted.
func Gate(handler http.Handler) http.Handler {
	places := fair.NewPlaces(reviewPlaces)
	accepted, denied := cache.NewLRUExpireCache(maxKnown), cache.NewLRUExpireCache(maxKnown)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if permitted, ok := accepted.Get(token); ok {
			if permitted == true {
				Busy(r)
			}
			handler.ServeHTTP(w, r)
			return
		}
		if _, ok := denied.Get(token); ok || r.Header.Get("Authorization") == "" {
			http.Error(w, challengeBody, http.StatusUnauthorized)
			return
		}
		address, _, _ := net.SplitHostPort(r.RemoteAddr)
		place, err := places.Enter(r.Context(), address, reviewWait)
		if err != nil {
			w.Header().Set("Retry-After", "5")
			http.Error(w, "Too many tokens are being reviewed.", http.StatusServiceUnavailable)
			return
		}
		until := time.Now().Add(reviewPause)
		answer := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		handler.ServeHTTP(answer, r)
		time.AfterFunc(time.Until(until), place.Leave)
		if answer.status == http.StatusUnauthorized {
			denied.Add(token, nil, unknownTime)
		} else if answer.status < http.StatusInternalServerError {
			accepted.Add(token, answer.status < http.StatusBadRequest, knownTime)
		}
	})
}

type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}
