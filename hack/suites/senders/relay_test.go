//go:build slow

package senders

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
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
	result, err := r.program.Alerts(context.Background(), decoded, header, time.Now())
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
	var answer struct {
		Type   string
		Alerts []struct {
			ID  string
			Key string `json:"dedup_key"`
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return err
	}
	keys, _ := response.Request.Context().Value(keysOf{}).([]string)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.account.Codes[strconv.Itoa(response.StatusCode)]++
	switch {
	case response.StatusCode != http.StatusAccepted && answer.Type == loadgen.UnknownOutcomeType:
		r.count(keys, func(k *loadgen.KeyAccount, _ int) { k.Unknown++ })
	case response.StatusCode != http.StatusAccepted:
		r.count(keys, func(k *loadgen.KeyAccount, _ int) { k.Refused++ })
	case len(answer.Alerts) != len(keys):
		return fmt.Errorf("%d alerts were sent, %d are in the answer", len(keys), len(answer.Alerts))
	default:
		r.count(keys, func(k *loadgen.KeyAccount, i int) {
			k.Acknowledged++
			k.AlertIDs = append(k.AlertIDs, answer.Alerts[i].ID)
		})
	}
	return nil
}

// failed keeps account of a request that the manager did not answer.
func (r *relay) failed(w http.ResponseWriter, request *http.Request, err error) {
	keys, _ := request.Context().Value(keysOf{}).([]string)
	var operation *net.OpError
	never := errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &operation) && operation.Op == "dial"
	r.mu.Lock()
	defer r.mu.Unlock()
	r.account.Codes["error"]++
	r.count(keys, func(k *loadgen.KeyAccount, _ int) {
		if never {
			k.Refused++
		} else {
			k.Unknown++
		}
	})
	w.WriteHeader(http.StatusBadGateway)
}

func (r *relay) count(keys []string, record func(k *loadgen.KeyAccount, i int)) {
	for i, key := range keys {
		if r.account.Keys[key] == nil {
			r.account.Keys[key] = &loadgen.KeyAccount{}
		}
		record(r.account.Keys[key], i)
	}
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

// acknowledged is, for each key, how many of its alerts were acknowledged.
func (r *relay) acknowledged() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[string]int{}
	for key, k := range r.account.Keys {
		counts[key] = k.Acknowledged
	}
	return counts
}

// tally is what became of the alerts so far, in words.
func (r *relay) tally() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var acknowledged, refused, unknown int
	for _, k := range r.account.Keys {
		acknowledged += k.Acknowledged
		refused += k.Refused
		unknown += k.Unknown
	}
	var codes []string
	for code, n := range r.account.Codes {
		codes = append(codes, fmt.Sprintf("%d × %s", n, code))
	}
	slices.Sort(codes)
	return fmt.Sprintf("%d keys, %d alerts acknowledged, %d refused, %d without an answer (requests: %v)",
		len(r.account.Keys), acknowledged, refused, unknown, codes)
}
