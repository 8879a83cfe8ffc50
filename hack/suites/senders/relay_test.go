//go:build slow

package senders

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// relay stands between a sender and the manager: it passes every request on and keeps account, by dedup key,
// of what the manager answered. While it is shut it answers as a manager does that is overloaded.
type relay struct {
	*httptest.Server
	program *mapping.Program
	forward *httputil.ReverseProxy

	mu      sync.Mutex
	idle    *sync.Cond // there is nothing under way
	running int
	shut    bool
	account *loadgen.Account
}

// startRelay starts a relay to the manager, for an integration with a preset.
func startRelay(manager, preset string) (*relay, error) {
	to, err := url.Parse(manager)
	if err != nil {
		return nil, err
	}
	r := &relay{account: loadgen.NewAccount()}
	r.idle = sync.NewCond(&r.mu)
	if r.program, err = mapping.Compile(preset, nil); err != nil {
		return nil, err
	}
	r.forward = &httputil.ReverseProxy{
		Rewrite: func(request *httputil.ProxyRequest) {
			request.SetURL(&url.URL{Scheme: to.Scheme, Host: to.Host})
		},
		// A connection for each request: one that the manager closed as it ended must not fail the next.
		Transport:      &http.Transport{DisableKeepAlives: true},
		ModifyResponse: r.answered,
		ErrorHandler:   r.failed,
	}
	r.Server = httptest.NewServer(r)
	return r, nil
}

// keysOf is the key of the request's context under which the dedup keys of its alerts are found.
type keysOf struct{}

// ServeHTTP passes a request on.
func (r *relay) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if !r.enter() {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the relay is shut", http.StatusServiceUnavailable)
		return
	}
	defer r.leave()
	body, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	keys, err := r.keys(body, request.Header)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request = request.WithContext(context.WithValue(request.Context(), keysOf{}, keys))
	request.Body = io.NopCloser(bytes.NewReader(body))
	r.forward.ServeHTTP(w, request)
}

// keys are the dedup keys of the alerts in a body.
func (r *relay) keys(body []byte, header http.Header) ([]string, error) {
	decoded, _, err := payload.ParseAny(body)
	if err != nil {
		return nil, err
	}
	result, err := r.program.Alerts(decoded, header, time.Now())
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, alert := range result.Alerts {
		keys = append(keys, alert.DedupKey)
	}
	return keys, nil
}

// answered keeps account of an answer of the manager.
func (r *relay) answered(response *http.Response) error {
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	keys, _ := response.Request.Context().Value(keysOf{}).([]string)
	outcome, ids := loadgen.Read(response.StatusCode, http.StatusAccepted, body, nil)
	if outcome == oracle.Acknowledged && len(ids) != len(keys) {
		return fmt.Errorf("%d alerts were sent, %d are in the answer", len(keys), len(ids))
	}
	for i, key := range keys {
		var id []string
		if outcome == oracle.Acknowledged {
			id = ids[i : i+1]
		}
		r.account.Record(key, outcome, strconv.Itoa(response.StatusCode), 0, id)
	}
	return nil
}

// failed keeps account of a request that the manager did not answer.
func (r *relay) failed(w http.ResponseWriter, request *http.Request, err error) {
	keys, _ := request.Context().Value(keysOf{}).([]string)
	for _, key := range keys {
		r.account.Record(key, loadgen.ErrorOutcome(err), "error", 0, nil)
	}
	w.WriteHeader(http.StatusBadGateway)
}

func (r *relay) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.shut {
		r.running++
	}
	return !r.shut
}

func (r *relay) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running--; r.running == 0 {
		r.idle.Broadcast()
	}
}

// close lets no more requests through and waits for those under way.
func (r *relay) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shut = true
	for r.running > 0 {
		r.idle.Wait()
	}
}

// open lets requests through again.
func (r *relay) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shut = false
}

// tally is what became of the alerts so far, in words.
func (r *relay) tally() string {
	keys, all := r.account.Snapshot()
	return fmt.Sprintf("%d keys, %d alerts acknowledged, %d refused, %d without an answer",
		len(keys), all.Acknowledged, all.Refused, all.Unknown)
}
