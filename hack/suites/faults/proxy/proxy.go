// Package proxy stands between a manager and the API servers and makes what networks and busy API servers
// do happen on purpose: answers get lost after the write was committed, connections break, requests are
// refused, watches hang or expire.
//
// It speaks plain HTTP on its front, so a client needs no credentials to use it; behind, it speaks TLS
// and brings a token.
package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Fate is what happens to a call. The zero Fate lets it pass.
type Fate struct {
	// Delay holds the call back.
	Delay time.Duration
	// Refuse answers with this status code; the API server never sees the call.
	Refuse int
	// Reset breaks the connection; the API server never sees the call.
	Reset bool
	// Before is called when the call has come, before it goes on to the API server.
	Before func()
	// After is called when the API server has answered, before the answer goes on.
	After func()
	// Lose breaks the connection after the API server has carried the call out.
	Lose bool
	// Garble carries the call out and answers with this status code instead.
	Garble int
}

// Observer is told what passes. Its methods are called at the same time from several goroutines.
type Observer interface {
	// Came is called when a request has come. What it returns is called with the answer before that goes on, also if it is to be
	// lost; the code is 0 if no API server has answered. Nothing of this may be modified.
	Came(call Call, r *http.Request, body []byte) (answered func(code int, contentType string, answer []byte))
	// Shown is called when a line of a watch has gone on, whenever the watch began.
	Shown(call Call, line []byte)
}

// nobody is told.
type nobody struct{}

func (nobody) Came(Call, *http.Request, []byte) func(int, string, []byte) {
	return func(int, string, []byte) {}
}

func (nobody) Shown(Call, []byte) {}

// Proxy is a fault proxy.
type Proxy struct {
	// URL is where it listens.
	URL string

	upstreams []*url.URL
	token     string
	transport *http.Transport
	server    *http.Server
	prefer    atomic.Int32
	watches   watchGate

	mu       sync.Mutex
	rule     func(Call) Fate
	observer Observer
	denied   map[string]int
	flows    map[string]string
}

// Start starts a proxy to the API servers at these URLs, which it approaches with the token. The one
// preferred is asked first, the others when it does not take the connection.
func Start(urls []string, token string, preferred int) (*Proxy, error) {
	p := &Proxy{
		token: token,
		transport: &http.Transport{
			TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the rig's own servers
			MaxIdleConnsPerHost: 64,
			DisableCompression:  true,
			DialContext:         (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
		},
		observer: nobody{}, denied: map[string]int{}, flows: map[string]string{},
	}
	p.watches.init()
	p.prefer.Store(int32(preferred))
	for _, raw := range urls {
		upstream, err := url.Parse(raw)
		if err != nil {
			return nil, err
		}
		p.upstreams = append(p.upstreams, upstream)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("opening the proxy's address: %w", err)
	}
	p.URL = "http://" + listener.Addr().String()
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	go func() { _ = p.server.Serve(listener) }()
	return p, nil
}

// Close stops the proxy and breaks its connections.
func (p *Proxy) Close() {
	_ = p.server.Close()
	p.transport.CloseIdleConnections()
}

// SetRule decides the fate of every call from now on; nil lets all pass.
func (p *Proxy) SetRule(rule func(Call) Fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = rule
}

// Observe has the observer be told of what comes from now on; nil: nobody is.
func (p *Proxy) Observe(observer Observer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.observer = observer; observer == nil {
		p.observer = nobody{}
	}
}

// observed returns who is told now.
func (p *Proxy) observed() Observer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.observer
}

// Forbidden are the numbers of calls that the API server forbade, those in namespaces that are being
// deleted left out.
func (p *Proxy) Forbidden() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.denied)
}

// Flows are the UIDs of the FlowSchemas under which the API server took the calls, by verb and resource.
func (p *Proxy) Flows() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.flows)
}

// note keeps what Forbidden and Flows tell.
func (p *Proxy) note(call Call, code int, answer []byte, flow string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flows[call.String()] = flow
	if code == http.StatusForbidden && !bytes.Contains(answer, []byte("being terminated")) {
		p.denied[call.String()]++
	}
}

func (p *Proxy) fate(call Call) Fate {
	p.mu.Lock()
	rule := p.rule
	p.mu.Unlock()
	if rule == nil {
		return Fate{}
	}
	return rule(call)
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := callOf(r)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if call.Verb == "create" && call.Name == "" {
		call.Name = nameOf(body)
	}
	answered := p.observed().Came(call, r, body)
	fate := p.fate(call)
	if !fate.begin(w, r) {
		return
	}
	response, err := p.forward(r, body)
	if err != nil {
		answered(0, "", nil)
		reset(w)
		return
	}
	defer func() { _ = response.Body.Close() }()
	if call.Verb == "watch" && response.StatusCode == http.StatusOK {
		p.watches.pass(w, r, call, response, func(line []byte) { p.observed().Shown(call, line) })
		return
	}
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		answered(0, "", nil)
		reset(w)
		return
	}
	answered(response.StatusCode, response.Header.Get("Content-Type"), answer)
	p.note(call, response.StatusCode, answer, response.Header.Get("X-Kubernetes-Pf-Flowschema-Uid"))
	if fate.After != nil {
		fate.After()
	}
	switch {
	case fate.Lose:
		reset(w)
	case fate.Garble != 0:
		answerStatus(w, fate.Garble)
	default:
		maps.Copy(w.Header(), response.Header)
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		w.WriteHeader(response.StatusCode)
		_, _ = w.Write(answer)
	}
}

// begin does what happens to a call before the API server sees it. It is false when the API server never
// does.
func (f *Fate) begin(w http.ResponseWriter, r *http.Request) bool {
	if f.Before != nil {
		f.Before()
	}
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-r.Context().Done():
			return false
		}
	}
	switch {
	case f.Reset:
		reset(w)
		return false
	case f.Refuse != 0:
		answerStatus(w, f.Refuse)
		return false
	}
	return true
}

// forward asks the preferred API server, and another one when it does not take the connection.
func (p *Proxy) forward(r *http.Request, body []byte) (*http.Response, error) {
	var errs error
	for i := range p.upstreams {
		upstream := p.upstreams[(int(p.prefer.Load())+i)%len(p.upstreams)]
		request := r.Clone(r.Context())
		request.RequestURI = ""
		request.Host = upstream.Host
		request.URL.Scheme, request.URL.Host = upstream.Scheme, upstream.Host
		request.Body = io.NopCloser(bytes.NewReader(body))
		request.ContentLength = int64(len(body))
		request.Header.Set("Authorization", "Bearer "+p.token)
		request.Header.Del("Accept-Encoding") // Kubernetes 1.37 compresses watches too, and the gate reads their lines
		response, err := p.transport.RoundTrip(request)
		if err == nil {
			return response, nil
		}
		errs = errors.Join(errs, err)
		var operation *net.OpError
		if !errors.As(err, &operation) || operation.Op != "dial" {
			break // it may have been carried out: the client has to know
		}
	}
	return nil, errs
}

// reset breaks the client's connection without an answer.
func reset(w http.ResponseWriter) {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = connection.Close()
}

// reasons are the API server's words for status codes.
var reasons = map[int]string{
	http.StatusGone:                "Expired",
	http.StatusTooManyRequests:     "TooManyRequests",
	http.StatusInternalServerError: "InternalError",
	http.StatusUnprocessableEntity: "Invalid",
	http.StatusServiceUnavailable:  "ServiceUnavailable",
	http.StatusGatewayTimeout:      "Timeout",
}

func statusObject(code int) []byte {
	return fmt.Appendf(nil, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`+
		`"message":"a fault of the proxy","reason":%q,"code":%d}`, reasons[code], code)
}

func answerStatus(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(code)
	_, _ = w.Write(statusObject(code))
}
