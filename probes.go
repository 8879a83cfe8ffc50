package main

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

// probeHeaderTimeout bounds the headers of a request to the probes.
const probeHeaderTimeout = 5 * time.Second

// addProbes serves /healthz, which the process answers as long as it runs, and /readyz, which says why the replica is
// not ready. controller-runtime's own probes keep the reason to themselves.
func addProbes(ctx context.Context, mgr ctrl.Manager, o options, ready func() error) error {
	if o.probeAddress == off {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.probeAddress)
	if err != nil {
		return fmt.Errorf("opening the address of the probes: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { answerProbe(w, nil) })
	mux.Handle("/readyz", &readiness{check: ready, log: mgr.GetLogger().WithName("readiness")})
	return mgr.Add(&manager.Server{
		Name:     "health probe",
		Server:   &http.Server{Handler: mux, ReadHeaderTimeout: probeHeaderTimeout},
		Listener: listener,
	})
}

// readiness answers /readyz, and logs every change of the answer.
type readiness struct {
	check func() error
	log   logr.Logger

	mu   sync.Mutex
	last string
}

// ServeHTTP implements http.Handler.
func (r *readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	err := r.check()
	answerProbe(w, err)
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

// answerProbe answers 200, or 503 with the reason.
func answerProbe(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}
