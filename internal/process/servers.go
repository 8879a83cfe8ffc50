package process

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"

	"github.com/tocsin-dev/tocsin/internal/httpserver"
)

const (
	longAnswers = 2 * time.Minute // longer than a profile takes
	// stopTimeout bounds the wait for answers at the end. These servers stop last, after those that store alerts.
	stopTimeout = 2 * time.Second
)

// AddServers opens the addresses of the probes, the metrics and the profiles, and adds a server for each to the manager. check
// returns why the process is not ready, nil while it is. Without a check it always is.
func (o *Options) AddServers(ctx context.Context, mgr ctrl.Manager, check func() error) error {
	handler, config, err := o.metrics(mgr)
	if err != nil {
		return err
	}
	return errors.Join(
		o.addServer(ctx, mgr, "health probe", o.ProbeAddress, probes(mgr, check), nil),
		o.addServer(ctx, mgr, "metrics", o.MetricsAddress, handler, config),
		o.addServer(ctx, mgr, "pprof", o.PprofAddress, profiles(), nil),
	)
}

func (o *Options) addServer(
	ctx context.Context, mgr ctrl.Manager, name, address string, handler http.Handler, config *tls.Config,
) error {
	if address == Off {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening on the %s address: %w", name, err)
	}
	server := httpserver.New(httpserver.Options{
		Handler: handler, Log: mgr.GetLogger().WithName(name), Connections: httpserver.FewConnections, TLS: config,
		LongAnswers: longAnswers, Anonymous: true, // but for those that the gate of the metrics lets through
	})
	return mgr.Add(&manager.Server{
		Name: name, Server: server.Server, Listener: server.Over(listener), ShutdownTimeout: new(stopTimeout),
	})
}

// probes returns the handler of /healthz, which answers as long as the process runs, and /readyz, which answers what check
// returns, with 503 for an error; the log has every change of it. controller-runtime's own probes do not tell the reason.
func probes(mgr ctrl.Manager, check func() error) http.Handler {
	const ok = "ok"
	log := mgr.GetLogger().WithName("readiness")
	var last atomic.Value // the reason of the last response
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, ok) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		reason := ok
		if check != nil {
			if err := check(); err != nil {
				reason = err.Error()
				w.WriteHeader(http.StatusServiceUnavailable)
			}
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
	return mux
}

// metrics returns the handler of /metrics, and the configuration of TLS: it uses TLS when it is secure or has a certificate, a
// self-signed one unless there is a path.
func (o *Options) metrics(mgr ctrl.Manager) (http.Handler, *tls.Config, error) {
	mux := http.NewServeMux()
	if o.MetricsAddress == Off {
		return mux, nil, nil
	}
	handler := promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
	if o.MetricsSecure {
		protect, err := filters.WithAuthenticationAndAuthorization(mgr.GetConfig(), mgr.GetHTTPClient())
		if err == nil {
			handler, err = protect(mgr.GetLogger().WithName("metrics"), handler)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("setting up the access control of metrics: %w", err)
		}
		handler = httpserver.Gate(handler)
	}
	mux.Handle("/metrics", handler)
	if o.MetricsCertPath != "" {
		config, watcher, err := httpserver.Certificate(o.MetricsCertPath)
		if err != nil {
			return nil, nil, fmt.Errorf("loading the metrics certificate: %w", err)
		}
		return mux, config, mgr.Add(watcher)
	}
	if !o.MetricsSecure {
		return mux, nil, nil
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("generating a certificate for metrics: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the certificate for metrics: %w", err)
	}
	return mux, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}, nil
}

func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
