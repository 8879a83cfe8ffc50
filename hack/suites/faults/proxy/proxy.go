// Package proxy stands between a manager and the API servers and makes what networks and busy API servers
// do happen on purpose: answers get lost after the write was committed, connections break, requests are
// refused.
//
// It speaks plain HTTP on its front, so a client needs no credentials to use it; behind, it speaks TLS
// and brings a token.
package proxy

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Call is what a request asks of the API server.
type Call struct {
	// Verb is create, update, patch, delete, deletecollection, get, list or watch.
	Verb string
	// Resource is the plural name, with a slash and the subresource where there is one.
	Resource string
}

func (c Call) String() string { return c.Verb + " " + c.Resource }

var callReader = request.RequestInfoFactory{
	APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
}

func callOf(r *http.Request) Call {
	info, err := callReader.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest {
		return Call{info.Verb, "discovery"}
	}
	return Call{info.Verb, path.Join(info.Resource, info.Subresource)}
}

// Fate is what happens to a call. The zero Fate lets it pass.
type Fate struct {
	// Before is called when the call has come, before it goes on to the API server.
	Before func()
	// Refuse answers with this status code; the API server never sees the call.
	Refuse int
	// Reset breaks the connection; the API server never sees the call.
	Reset bool
	// After is called when the API server has answered, before the answer goes on.
	After func()
	// Lose breaks the connection after the API server has carried the call out.
	Lose bool
	// Garble carries the call out and answers with this status code instead.
	Garble int
}

// Proxy is a fault proxy.
type Proxy struct {
	// URL is where it listens.
	URL string

	token     string
	transport *http.Transport
	server    *http.Server

	mu     sync.Mutex
	rule   func(Call) Fate
	denied map[string]int
	flows  map[string]string
}

// Start starts a proxy to the API servers at these URLs, which it approaches with the token. The one
// preferred is asked first, the others when it does not take the connection.
func Start(urls []string, token string, preferred int) (*Proxy, error) {
	var addresses []string
	for i := range urls {
		upstream, err := url.Parse(urls[(preferred+i)%len(urls)])
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, upstream.Host)
	}
	p := &Proxy{
		token: token,
		transport: &http.Transport{
			TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the rig's own servers
			MaxIdleConnsPerHost: 64,
			DisableCompression:  true,
			DialContext: func(ctx context.Context, _, _ string) (connection net.Conn, err error) {
				return dialFirst(ctx, addresses)
			},
		},
		denied: map[string]int{}, flows: map[string]string{},
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

// dialFirst connects to the first of the addresses that takes the connection.
func dialFirst(ctx context.Context, addresses []string) (net.Conn, error) {
	var errs error
	for _, address := range addresses {
		connection, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", address)
		if err == nil {
			return connection, nil
		}
		errs = errors.Join(errs, err)
	}
	return nil, errs
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

// Forbidden are the numbers of calls that the API server forbade.
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
func (p *Proxy) note(call Call, answer *http.Response) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flows[call.String()] = answer.Header.Get("X-Kubernetes-Pf-Flowschema-Uid")
	if answer.StatusCode == http.StatusForbidden {
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

// errKeptBack ends a call that was carried out, and whose answer does not go on.
var errKeptBack = errors.New("the answer is kept back")

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := callOf(r)
	fate := p.fate(call)
	if fate.Before != nil {
		fate.Before()
	}
	switch {
	case fate.Reset:
		panic(http.ErrAbortHandler) // which breaks the connection
	case fate.Refuse != 0:
		answerStatus(w, fate.Refuse)
		return
	}
	forward := httputil.ReverseProxy{
		Transport: p.transport,
		ErrorLog:  log.New(io.Discard, "", 0),
		Rewrite: func(q *httputil.ProxyRequest) {
			q.SetURL(&url.URL{Scheme: "https", Host: "apiservers"})
			q.Out.Header.Set("Authorization", "Bearer "+p.token)
		},
		ModifyResponse: func(answer *http.Response) error {
			p.note(call, answer)
			if fate.After != nil {
				fate.After()
			}
			if fate.Lose || fate.Garble != 0 {
				return errKeptBack
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if fate.Garble == 0 || !errors.Is(err, errKeptBack) {
				panic(http.ErrAbortHandler)
			}
			answerStatus(w, fate.Garble)
		},
	}
	forward.ServeHTTP(w, r)
}

// answerStatus answers as an API server does.
func answerStatus(w http.ResponseWriter, code int) {
	status := apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", "a fault of the proxy", 0, false).Status()
	status.APIVersion, status.Kind = "v1", "Status"
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status)
}
