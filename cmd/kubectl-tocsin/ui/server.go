// Package ui serves a web page with the Incidents to the user's browser.
//
// It listens on 127.0.0.1 only, shows what the user's kubeconfig may read, and changes nothing. Other users of the
// machine and web pages in the browser can also reach the port, so:
//
//   - The server returns data only to clients with the key: 128 random bits in the fragment of the printed URL. A
//     browser does not send the fragment; the page sends it in the Authorization header. A cookie would be sent to
//     every other port of the host, too.
//   - The server rejects requests for other hosts, which prevents DNS rebinding.
//   - The page loads nothing from other origins and runs only its own script, which creates nodes and sets their
//     text: senders' text is never parsed as HTML. Content-Security-Policy and Trusted Types enforce this.
package ui

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gocloud.dev/blob"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/live"
)

//go:embed static
var static embed.FS

const (
	headerTimeout = 5 * time.Second
	idleTimeout   = time.Minute
	// writeTimeout bounds one write to a browser that does not read.
	writeTimeout = 10 * time.Second
	// readTimeout bounds a request to the API server. The page waits a little longer.
	readTimeout    = 5 * time.Second
	maxHeaderBytes = 16 << 10
)

// Server serves the page and its data.
type Server struct {
	Options
	client   client.WithWatch
	key      string
	port     int
	listener net.Listener
	feed     *live.Feed
	changes  atomic.Int64 // of the feed's Incidents
	now      func() time.Time
}

// Options of a Server.
type Options struct {
	// Namespace is the namespace of the Incidents; empty for all.
	Namespace string
	// Port to listen on; 0 for a free one.
	Port int
	// Command is the beginning of the command lines that the page offers to copy. Default: "kubectl tocsin".
	Command string
	// Archive has the finished episodes; nil if there is none.
	Archive *blob.Bucket
}

// Listen opens the port and returns a server.
func Listen(ctx context.Context, c client.WithWatch, o Options) (*Server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Port)))
	if err != nil {
		return nil, err
	}
	s := &Server{Options: o, client: c, key: rand.Text(), listener: listener, now: time.Now}
	s.Command = cmp.Or(o.Command, "kubectl tocsin")
	if address, ok := listener.Addr().(*net.TCPAddr); ok {
		s.port = address.Port
	}
	s.feed, err = live.Follow(c, s.Namespace, nil, func(live.Change) { s.changes.Add(1) })
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return s, nil
}

// URL returns the URL of the page with the key.
func (s *Server) URL() string {
	return fmt.Sprintf("http://127.0.0.1:%d/#key=%s", s.port, s.key)
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // ends the streams
	}
	tasks.Go(func() { s.feed.Run(ctx) })
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
	data := http.NewServeMux()
	data.HandleFunc("GET /api/stream", s.stream)
	data.HandleFunc("GET /api/counts", s.counts)
	data.HandleFunc("GET /api/history", s.past(s.history))
	data.HandleFunc("GET /api/report", s.past(s.report))
	data.HandleFunc("GET /api/incidents/{namespace}/{name}", s.incident)
	mux := http.NewServeMux()
	mux.Handle("/api/", s.withKey(data))
	mux.Handle("/", http.FileServerFS(files))
	return s.guard(mux)
}

// incident returns an Incident without its ledger and managed fields.
func (s *Server) incident(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	incident := &v1alpha1.Incident{}
	err := s.client.Get(ctx, client.ObjectKey{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}, incident)
	if err != nil {
		code := http.StatusBadGateway
		if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code != 0 {
			code = int(status.Status().Code)
		} else if errors.Is(err, context.DeadlineExceeded) {
			code = http.StatusGatewayTimeout
		}
		writeError(w, code, errors.New(live.Sentence(err)))
		return
	}
	incident.ManagedFields = nil
	incident.Status.Ledger = v1alpha1.Ledger{}
	writeJSON(w, http.StatusOK, incident)
}

// counts returns the number of open Incidents over the last hours.
func (s *Server) counts(w http.ResponseWriter, r *http.Request) {
	const maxHours = 24 * 31
	hours, err := strconv.Atoi(r.URL.Query().Get("hours"))
	if err != nil || hours < 1 || hours > maxHours {
		writeError(w, http.StatusBadRequest, fmt.Errorf("hours must be a number from 1 to %d", maxHours))
		return
	}
	writeJSON(w, http.StatusOK, countOpen(s.feed.Incidents(), s.now(), time.Duration(hours)*time.Hour))
}

func writeError(w http.ResponseWriter, code int, err error) {
	writeJSON(w, code, map[string]string{"error": err.Error()})
}

func writeJSON(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value) // the browser may have disconnected
}

// lines answers a request with lines of JSON.
type lines struct {
	control *http.ResponseController
	encoder *json.Encoder
}

func newLines(w http.ResponseWriter) lines {
	w.Header().Set("Content-Type", "application/x-ndjson")
	return lines{http.NewResponseController(w), json.NewEncoder(w)}
}

// send reports whether the browser still listens.
func (l lines) send(value any) bool {
	_ = l.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not all writers support it
	return l.encoder.Encode(value) == nil && l.control.Flush() == nil
}

// policy is the Content-Security-Policy: it permits the page's own script, style and icon and connections to the server
// only, and prevents text from being parsed as script or markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard rejects requests for other hosts and other methods than GET and HEAD, and sets security headers.
func (s *Server) guard(next http.Handler) http.Handler {
	hosts := []string{fmt.Sprintf("127.0.0.1:%d", s.port), fmt.Sprintf("localhost:%d", s.port)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		switch {
		case !slices.Contains(hosts, r.Host):
			writeError(w, http.StatusMisdirectedRequest, fmt.Errorf("the host must be %s", strings.Join(hosts, " or ")))
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			header.Set("Allow", "GET, HEAD")
			writeError(w, http.StatusMethodNotAllowed, errors.New("the page is read-only"))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// withKey rejects requests without the key.
func (s *Server) withKey(next http.Handler) http.Handler {
	want := []byte("Bearer " + s.key)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeError(w, http.StatusUnauthorized, errors.New("open the URL that kubectl tocsin ui has printed"))
			return
		}
		next.ServeHTTP(w, r)
	})
}
