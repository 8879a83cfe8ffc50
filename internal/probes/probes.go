// Package probes serves /healthz, which answers as long as the process runs, and /readyz, which tells why the replica
// is not ready. controller-runtime's own probes do not tell the reason.
package probes

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// headerTimeout bounds reading the headers of a request.
const headerTimeout = 5 * time.Second

// Add opens the address and adds a server of both probes to the manager. /readyz answers what ready returns, with 503 for an
// error, and the log has every change of it.
func Add(ctx context.Context, mgr ctrl.Manager, address string, ready func() error) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening on the health probe address: %w", err)
	}
	const ok = "ok"
	log := mgr.GetLogger().WithName("readiness")
	var last atomic.Value // the reason of the last response
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, ok) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		reason := ok
		if err := ready(); err != nil {
			reason = err.Error()
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = fmt.Fprintln(w, reason)
		switch {
		case last.Swap(reason) == reason:
		case reason == ok:
			log.Info("Ready")
		default:
			log.Info("Not ready", "reason", reason)
		}
	})
	return mgr.Add(&manager.Server{
		Name:     "health probe",
		Server:   &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout},
		Listener: listener,
	})
}
