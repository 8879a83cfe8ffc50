package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ErrExpired is what Faults.Deliver returns to end a watch with 410 Expired.
var ErrExpired = errors.New("the watch expires")

// These are what Faults.Deliver returns for a watch that breaks its promise, as etcd's have done. They concern no initial events.
var (
	ErrDropped  = errors.New("the event is left out")
	ErrRepeated = errors.New("the event comes twice")
	ErrSwapped  = errors.New("the event comes after the next one")
	ErrRewound  = errors.New("the events before this one come again")
)

// Call describes one request to Faults. Its fields are those of the request, so that a hash of some of them and a counter decides
// about a fault independently of other calls.
type Call struct {
	// Resource is plural.group, such as incidents.tocsin.dev. Name is also that of the object that is created, but only Leave and
	// Deny know a generated one.
	Client, Verb, Resource, Subresource, Namespace, Name string

	// Watch says that the verb is watch. Quorum says that it is a get or list without a resourceVersion, which must not be stale.
	Watch, Quorum bool
	// Revision is that of the state from which a get or list was answered; only Leave knows it.
	Revision int64
	Body     []byte // read-only
	Header   http.Header
	Query    url.Values
}

// Faults decides how the requests of a client fare. Its methods are called at the same time from several goroutines.
type Faults interface {
	// Arrive is called before the request is processed. It may sleep, and block until ctx ends. It returns an error in place of a
	// connection, or an answer in place of the server's, or neither.
	Arrive(ctx context.Context, call *Call) (*metav1.Status, error)
	// Leave is called after the request was processed with this status code, of a watch when it begins. It may sleep, and block
	// until ctx ends. With an error the response is lost.
	Leave(ctx context.Context, call *Call, code int) error
	// Deliver is called before each event of a watch, initial ones and bookmarks included, with the resourceVersion of its object.
	// It may sleep or block. An error ends the watch as a broken connection, ErrExpired with 410; ErrDropped and the like do not.
	Deliver(ctx context.Context, call *Call, resourceVersion int64) error
}

// Staleness is implemented by Faults that have an API server whose own cache lags.
type Staleness interface {
	// Lag returns by how many resourceVersions the answer to a get, list or watch is behind that gives a resourceVersion: it may
	// be of any state that is not older than this one, and "0" is any state. It is called under the server's lock.
	Lag(call *Call) int64
}

// NoFaults implements Faults without any.
type NoFaults struct{}

// Arrive implements Faults.
func (NoFaults) Arrive(context.Context, *Call) (*metav1.Status, error) { return nil, nil }

// Leave implements Faults.
func (NoFaults) Leave(context.Context, *Call, int) error { return nil }

// Deliver implements Faults.
func (NoFaults) Deliver(context.Context, *Call, int64) error { return nil }

// Transport returns the http.RoundTripper of one client, for rest.Config.Transport. faults may be nil.
func (s *Server) Transport(client string, faults Faults) http.RoundTripper {
	if faults == nil {
		faults = NoFaults{}
	}
	return &transport{s, client, faults}
}

type transport struct {
	server *Server
	client string
	faults Faults
}

// request is a request with what its path and parameters say.
type request struct {
	*Call
	ctx        context.Context
	faults     Faults
	table      *table
	asMetadata bool // the client gets PartialObjectMetadata
	asProtobuf bool // the client prefers protobuf
	dryRun     bool
	manager    string
	content    map[string]any // the decoded body of a create
}

// reply is an answer: a body, or a stream of events.
type reply struct {
	code   int
	body   []byte
	stream io.ReadCloser
	retry  int32  // seconds, for the header Retry-After
	format string // the Content-Type; empty: JSON
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(q *http.Request) (*http.Response, error) {
	var body []byte
	if q.Body != nil {
		var err error
		body, err = io.ReadAll(q.Body)
		if err = errors.Join(err, q.Body.Close()); err != nil {
			return nil, err
		}
	}
	r, failure := t.server.parse(q, body)
	r.Client, r.faults = t.client, t.faults
	status, err := t.faults.Arrive(r.ctx, r.Call)
	if err = errors.Join(err, r.ctx.Err()); err != nil {
		return nil, err
	}
	var answer *reply
	switch {
	case status != nil:
		answer = failed(&apierrors.StatusError{ErrStatus: *status})
	case errors.Is(failure, errNotServed):
		answer = t.server.openAPI(q.URL.Path)
	case failure != nil:
		answer = failed(failure)
	default:
		answer = t.server.serve(r)
	}
	err = t.faults.Leave(r.ctx, r.Call, answer.code)
	if err = errors.Join(err, r.ctx.Err()); err != nil {
		if answer.stream != nil {
			_ = answer.stream.Close()
		}
		return nil, err
	}
	return answer.response(q, t.server.options.Now()), nil
}

// errNotServed is the error for a path that leads to no resource.
var errNotServed = errors.New("404 page not found")

// openAPI returns the OpenAPI document of a group and version, as far as it describes kinds. Other paths that lead to no resource
// are not served.
func (s *Server) openAPI(path string) *reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	document, ok := s.documents[path]
	if !ok {
		document = s.document(path)
		s.documents[path] = document
	}
	if document == nil {
		return &reply{code: http.StatusNotFound, body: []byte(errNotServed.Error()), format: "text/plain; charset=utf-8"}
	}
	return &reply{code: http.StatusOK, body: document}
}

// document makes the OpenAPI document of a group and version; nil if it describes nothing.
func (s *Server) document(path string) []byte {
	var schemas []string
	for _, r := range s.options.Definitions.resources {
		if path == "/openapi/v3/apis/"+r.GroupVersion().String() {
			labels := strings.Split(r.Group, ".")
			slices.Reverse(labels)
			name := strings.Join(append(labels, r.Version, r.Kind), ".")
			schemas = append(schemas, fmt.Sprintf("%q:%s", name, s.published(r)))
		}
	}
	if len(schemas) == 0 {
		return nil
	}
	return []byte(`{"components":{"schemas":{` + strings.Join(schemas, ",") + "}}}")
}

var verbs = map[string]func(*Server, *request) (*reply, error){
	"get": (*Server).get, "list": (*Server).list, "watch": (*Server).watch, "create": (*Server).create, "update": (*Server).update,
	"patch": (*Server).patch, "delete": (*Server).delete, "deletecollection": (*Server).deleteCollection,
}

// serve processes a request.
func (s *Server) serve(r *request) *reply {
	serve := verbs[r.Verb]
	if serve == nil {
		return failed(apierrors.NewMethodNotSupported(r.table.groupResource(), r.Verb))
	}
	answer, err := serve(s, r)
	if err != nil {
		return failed(err)
	}
	return answer
}

// failed returns the answer for an error.
func failed(err error) *reply {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.Kind, status.APIVersion, status.Status = "Status", "v1", metav1.StatusFailure
	answer := &reply{code: int(status.Code), body: encode(&status)}
	if status.Details != nil {
		answer.retry = status.Details.RetryAfterSeconds
	}
	return answer
}

func (a *reply) response(q *http.Request, now time.Time) *http.Response {
	header := http.Header{
		"Content-Type": {cmp.Or(a.format, runtime.ContentTypeJSON)}, "Cache-Control": {"no-cache, private"},
		"Date": {now.UTC().Format(http.TimeFormat)},
	}
	if a.retry > 0 {
		header.Set("Retry-After", strconv.Itoa(int(a.retry)))
	}
	body, length := a.stream, int64(-1)
	if body == nil {
		body, length = io.NopCloser(bytes.NewReader(a.body)), int64(len(a.body))
	}
	return &http.Response{
		Status: strconv.Itoa(a.code) + " " + http.StatusText(a.code), StatusCode: a.code, Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     header, Request: q, ContentLength: length, Body: body,
	}
}
