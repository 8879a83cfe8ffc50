// Package ui serves a web page of the Incidents, for the browser of the one who started it.
//
// It listens on 127.0.0.1 only and shows what the caller's kubeconfig may read; it changes nothing. Everybody
// else on the machine can reach the port, and so can every web page that the browser has open, which is what
// these are for:
//
//   - The data are given out only to whoever has the key, 128 random bits behind the # of the address that is
//     printed. A browser does not send that part to anybody; the page puts it into the Authorization header.
//     A cookie would go to every other port of the host too.
//   - A request for another host than this one is refused, so a name that is made to point to 127.0.0.1 (DNS
//     rebinding) leads nowhere.
//   - The page may load nothing from elsewhere and run nothing but its one script, which makes nodes and sets
//     their text: what a sender calls an alert is never read as HTML. Content-Security-Policy and Trusted Types
//     hold it to that.
package ui

import (
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strconv"
	"time"

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
	// readTimeout bounds a request to the API server. The page waits for a little longer.
	readTimeout    = 5 * time.Second
	maxHeaderBytes = 16 << 10
)

// Server is the page and its data.
type Server struct {
	client    client.WithWatch
	namespace string // empty: all
	command   string
	key       string
	port      int
	listener  net.Listener
	feed      *live.Feed
	board     *board
	now       func() time.Time
}

// Options are what a page shows, and where.
type Options struct {
	// Namespace is the one whose Incidents the page shows; empty for all.
	Namespace string
	// Port is the one of 127.0.0.1 to listen on; 0 for a free one.
	Port int
	// Command is how the command lines begin that the page offers to be copied; empty for "kubectl tocsin".
	Command string
}

// Listen makes a server.
func Listen(ctx context.Context, c client.WithWatch, o Options) (*Server, error) {
	port, namespace := o.Port, o.Namespace
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	s := &Server{client: c, namespace: namespace, command: cmp.Or(o.Command, "kubectl tocsin"),
		key: rand.Text(), listener: listener, board: newBoard(), now: time.Now}
	if address, ok := listener.Addr().(*net.TCPAddr); ok {
		s.port = address.Port
	}
	s.feed, err = live.Follow(c, namespace, keep, s.board.note)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return s, nil
}

// keep leaves of an Incident what the list, the search and the counts need.
func keep(incident *v1alpha1.Incident) {
	alert := &incident.Status.Alert
	alert.Description, alert.Annotations, alert.Values, alert.Custom = "", nil, nil, nil
	incident.Status.Ledger = v1alpha1.Ledger{}
}

// URL is the address of the page with the key.
func (s *Server) URL() string {
	return fmt.Sprintf("http://127.0.0.1:%d/#key=%s", s.port, s.key)
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // ends the streams
	}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		s.feed.Run(ctx)
	}()
	served := make(chan error, 1)
	go func() { served <- server.Serve(s.listener) }()
	var err error
	select {
	case <-ctx.Done():
		err = server.Close()
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
	case err = <-served:
	}
	cancel()
	<-followed
	return err
}

// Handler answers the browser.
func (s *Server) Handler() http.Handler {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // they are part of the binary
	}
	data := http.NewServeMux()
	data.HandleFunc("GET /api/stream", s.stream)
	data.HandleFunc("GET /api/counts", s.counts)
	data.HandleFunc("GET /api/incidents/{namespace}/{name}", s.incident)
	mux := http.NewServeMux()
	mux.Handle("/api/", s.withKey(data))
	mux.Handle("/", http.FileServerFS(files))
	return s.guard(mux)
}

// incident answers with an Incident as it is now, all of it but what is the operator's own.
func (s *Server) incident(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	incident := &v1alpha1.Incident{}
	err := s.client.Get(ctx, client.ObjectKey{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}, incident)
	if err != nil {
		code := http.StatusBadGateway
		if errors.Is(err, context.DeadlineExceeded) {
			code = http.StatusGatewayTimeout
		}
		if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code != 0 {
			code = int(status.Status().Code)
		}
		writeError(w, code, errors.New(live.Sentence(err)))
		return
	}
	incident.ManagedFields = nil
	incident.Status.Ledger = v1alpha1.Ledger{}
	writeJSON(w, http.StatusOK, incident)
}

// counts answers with how many Incidents were open over the last hours.
func (s *Server) counts(w http.ResponseWriter, r *http.Request) {
	const most = 24 * 31
	hours, err := strconv.Atoi(r.URL.Query().Get("hours"))
	if err != nil || hours < 1 || hours > most {
		writeError(w, http.StatusBadRequest, fmt.Errorf("hours is a number from 1 to %d", most))
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
	_ = json.NewEncoder(w).Encode(value) // the browser may have gone
}
