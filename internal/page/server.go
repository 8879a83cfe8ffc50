// Package page serves a web page with the Incidents to the user's browser.
//
// On a user's machine it listens on 127.0.0.1 only, and shows and does what the user's kubeconfig may. Other users of the
// machine and web pages in the browser can also reach the port, so:
//
//   - The server returns data only to clients with the key: 128 random bits in the fragment of the printed URL. A
//     browser does not send the fragment; the page sends it in the Authorization header. A cookie would be sent to
//     every other port of the host, too.
//   - The server rejects requests for other hosts, which prevents DNS rebinding.
//   - The page loads nothing from other origins and runs only its own script, which creates nodes and sets their
//     text: senders' text is never parsed as HTML. Content-Security-Policy and Trusted Types enforce this.
//
// In a cluster it serves many users and has no credentials: each request to the API server bears the token of the request that
// caused it, and nothing else, so RBAC decides what each user sees and does.
//
// The two differ in their access only: access.go has what it decides, owner.go and users.go are the two.
package page

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"gocloud.dev/blob"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/httpserver"
)

//go:embed static
var static embed.FS

const (
	// writeTimeout bounds one write to a browser that does not read.
	writeTimeout = 10 * time.Second
	// readTimeout bounds a request to the API server. The page waits a little longer.
	readTimeout = 5 * time.Second
)

// Server serves the page and its data. ForOwner and ForUsers make one.
type Server struct {
	Options
	access    access
	listener  net.Listener
	hosts     []string // for which requests may be; nil: for any
	url       string
	challenge string // WWW-Authenticate of a response 401
}

// Options of a page for one user.
type Options struct {
	// ClusterName is shown in the header. Default: the host of the page.
	ClusterName string
	// Namespace is the namespace of the Incidents; empty for all.
	Namespace string
	// Port on 127.0.0.1; 0 for a free one.
	Port int
	// Command is the beginning of the command lines that the page offers to copy. Default: "kubectl tocsin".
	Command string
	// Archive has the finished episodes; nil if there is none. A page for users has none: all would see those of all namespaces.
	Archive *blob.Bucket
}

// ForOwner opens the port, and returns the page of the user whose client it is.
func ForOwner(ctx context.Context, c client.WithWatch, o Options) (*Server, error) {
	listener, err := listen(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Port)))
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	own := newOwner(c, o.Namespace)
	return &Server{
		Options: o, access: own, listener: listener, challenge: "Bearer",
		hosts: []string{"127.0.0.1:" + port, "localhost:" + port},
		url:   "http://127.0.0.1:" + port + "/#key=" + own.key,
	}, nil
}

// ForUsers opens the address, and returns the page of all users of a cluster. It answers for any host: with pasted tokens there
// is nothing that a browser would send by itself to a host that was made to point here, and a proxy gives its cookie to its own
// host only.
func ForUsers(ctx context.Context, c Connector, address, clusterName string) (*Server, error) {
	listener, err := listen(ctx, address)
	if err != nil {
		return nil, err
	}
	return &Server{
		Options: Options{ClusterName: clusterName}, access: newUsers(c), listener: listener,
		url:       "http://" + listener.Addr().String() + "/",
		challenge: `Bearer realm="cluster"`, // by which the page knows that it has to ask for a token
	}, nil
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", address)
}

// URL returns the URL of the page; that of an owner contains the key.
func (s *Server) URL() string { return s.url }

// Run serves until ctx ends. The log gets what net/http says of connections; requests are not logged.
func (s *Server) Run(ctx context.Context, log logr.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	wait := s.access.follow(ctx)
	defer wait()
	defer cancel()
	server := httpserver.New(httpserver.Options{
		Handler: s.Handler(), Log: log, Connections: httpserver.MaxConnections / 4,
		LongAnswers: writeTimeout, // writeJSON and lines extend it: a request to the API server takes its time
		Anonymous:   true,         // until its caller is identified
	})
	server.BaseContext = func(net.Listener) context.Context { return ctx } // ends the streams
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Handler returns the HTTP handler.
func (s *Server) Handler() http.Handler {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // they are part of the binary
	}
	mux := http.NewServeMux()
	for pattern, answer := range map[string]endpoint{
		"GET /api/stream":                       s.stream,
		"GET /api/counts":                       s.limited(s.counts),
		"GET /api/history":                      s.limited(s.past((*pastStream).history)),
		"GET /api/report":                       s.limited(s.past((*pastStream).report)),
		"GET /api/incidents":                    s.limited(s.incidents),
		"GET /api/incidents/{namespace}/{name}": s.limited(s.incident),
		"POST /api/actions":                     s.act,
	} {
		mux.HandleFunc(pattern, s.handle(answer))
	}
	for _, f := range features {
		mux.HandleFunc("GET /api/"+strings.ToLower(f.Kind())+"s", s.handle(s.limited(parts(f))))
	}
	mux.HandleFunc("GET /"+incidentPath+"{namespace}/{name}", toIncident)
	mux.Handle("GET /", http.FileServerFS(files))
	return s.guard(mux)
}

// endpoint answers the request of a caller, or returns the reason why it does not.
type endpoint func(w http.ResponseWriter, r *http.Request, who *caller) error

func (s *Server) handle(answer endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := s.access.identify(r)
		if err == nil {
			httpserver.Busy(r)
			err = answer(w, r, who)
		}
		if err != nil {
			s.writeProblem(w, err)
		}
	}
}

// limited bounds the number of requests to the API server at a time.
func (s *Server) limited(next endpoint) endpoint {
	return func(w http.ResponseWriter, r *http.Request, who *caller) error {
		release, err := s.access.admit(who)
		if err != nil {
			return err
		}
		defer release()
		return next(w, r, who)
	}
}

const incidentPath = "incidents/"

// toIncident leads from the address of an Incident to the page. The name is in the path, since a fragment would get lost while a
// proxy has the user sign in; the Location is relative, since a proxy may have removed a prefix of the path.
func toIncident(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Location", "../../#/"+url.PathEscape(r.PathValue("namespace"))+"/"+url.PathEscape(r.PathValue("name")))
	w.WriteHeader(http.StatusFound)
}

// incident returns an Incident without its ledger and managed fields, with the origins of its fields.
func (s *Server) incident(w http.ResponseWriter, r *http.Request, who *caller) error {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	if problems := content.IsPathSegmentName(r.PathValue("name")); len(problems) > 0 {
		return badRequest("no incident has such a name: it %s", strings.Join(problems, ", "))
	}
	incident := &v1alpha1.Incident{}
	key := client.ObjectKey{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	if err := who.client.Get(ctx, key, incident); err != nil {
		return err
	}
	incident.ManagedFields = nil
	incident.Status.Ledger = v1alpha1.Ledger{}
	writeJSON(w, http.StatusOK, shownIncident{incident, originsOf(ctx, who.client, incident)})
	return nil
}

// counts returns the number of open Incidents over the last hours.
func (s *Server) counts(w http.ResponseWriter, r *http.Request, who *caller) error {
	const maxHours = 24 * 31
	hours, err := strconv.Atoi(r.URL.Query().Get("hours"))
	if err != nil || hours < 1 || hours > maxHours {
		return badRequest("hours must be a number from 1 to %d", maxHours)
	}
	watched, err := s.joinSynced(r.Context(), who)
	if err != nil {
		return err
	}
	defer watched.leave()
	writeJSON(w, http.StatusOK, countOpen(watched.feed.Incidents(), time.Now(), time.Duration(hours)*time.Hour))
	return nil
}

func writeJSON(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // not all writers support it
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value) // the browser may have disconnected
}

// lines answers a request with lines of JSON, also from several goroutines.
type lines struct {
	mu      sync.Mutex
	control *http.ResponseController
	encoder *json.Encoder
}

func newLines(w http.ResponseWriter) *lines {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy would keep lines back
	return &lines{control: http.NewResponseController(w), encoder: json.NewEncoder(w)}
}

// send reports whether the browser still listens.
func (l *lines) send(value any) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not all writers support it
	return l.encoder.Encode(value) == nil && l.control.Flush() == nil
}

// policy is the Content-Security-Policy: it permits the page's own script, style and icon and connections to the server
// only, and prevents text from being parsed as script or markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard sets security headers, and rejects requests for other hosts.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		if s.hosts != nil && !slices.Contains(s.hosts, r.Host) {
			s.writeProblem(w, statusError{http.StatusMisdirectedRequest, "the host must be " + strings.Join(s.hosts, " or ")})
			return
		}
		next.ServeHTTP(w, r)
	})
}
