// Package probes serves /healthz, which answers as long as the process runs, and /readyz, which tells why the replica
// is not ready. controller-runtime's own probes do not tell the reason.
package probes

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// headerTimeout bounds reading the headers of a request.
const headerTimeout = 5 * time.Second

// Add opens the address and adds a server of both probes to the manager. /readyz answers what ready returns.
func Add(ctx context.Context, mgr ctrl.Manager, address string, ready func() error) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening on the health probe address: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { respond(w, nil) })
	mux.Handle("/readyz", &readiness{check: ready, log: mgr.GetLogger().WithName("readiness")})
	return mgr.Add(&manager.Server{
		Name:     "health probe",
		Server:   &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout},
		Listener: listener,
	})
}

// readiness serves /readyz, and logs every change of the response.
type readiness struct {
	check func() error
	log   logr.Logger

	mu   sync.Mutex
	last string
}

// ServeHTTP implements http.Handler.
func (r *readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	err := r.check()
	respond(w, err)
	reason := "ok"
	if err != nil {
		reason = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if reason == r.last {
		return
	}
	r.last = reason
	if err != nil {
		r.log.Info("Not ready", "reason", reason)
	} else {
		r.log.Info("Ready")
	}
}

// respond writes 200, or 503 with the reason.
func respond(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}
