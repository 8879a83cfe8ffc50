package webhookserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/httpserver"
	"github.com/tocsin-dev/tocsin/internal/informers"
	"github.com/tocsin-dev/tocsin/webhookserver/capture"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/feature"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=alertevents,verbs=create;get;list;watch
// +kubebuilder:rbac:groups=tocsin.dev,resources=incidents,verbs=get;list;watch

// Server serves the endpoint. It runs on every replica, and beside the manager: requests are answered before the
// manager's cache has synced and while the manager stops.
type Server struct {
	options   Options
	handler   *handler
	committer *commit.Committer
	store     interface{ Close() }
	reports   *statusReporter
	log       logr.Logger
	listener  atomic.Pointer[net.Listener] // once it is open
}

// New makes the server and has the manager's cache feed it. The caller starts it, and may do so before the manager:
// until the cache has synced, requests are answered 503.
func New(mgr ctrl.Manager, options Options) (*Server, error) {
	options = options.withDefaults()
	log := mgr.GetLogger().WithName("webhookserver")
	tokens := newTokenIndex()
	captures := capture.NewRecorder(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("tocsin"), options.Namespaces, log)
	synced, err := informers.Feed(mgr.GetCache(), &v1alpha1.WebhookIntegration{},
		func(w *v1alpha1.WebhookIntegration, _ bool) {
			tokens.set(w)
			captures.Set(w)
		},
		func(w *v1alpha1.WebhookIntegration) {
			tokens.remove(w)
			captures.Remove(w)
			named.Forget(client.ObjectKeyFromObject(w))
		})
	if err != nil {
		return nil, err
	}
	store, err := commit.NewClient(mgr.GetConfig())
	if err != nil {
		return nil, err
	}
	committer := commit.New(store, options.MaxInFlightWrites, options.TracerProvider)
	reports := newReporter(mgr.GetClient(), mgr.GetEventRecorder("tocsin"), log)
	reports.health, reports.live = options.Health, mgr.GetAPIReader()
	ready := func() bool {
		unsynced := func(f feature.Feature) bool { return !f.Synced() }
		return synced() && !slices.ContainsFunc(options.Features, unsynced) && options.Capacity.Synced()
	}
	h := newHandler(options, ready, tokens, committer, mgr.GetAPIReader(), reports, log)
	h.captures = captures
	return &Server{options: options, handler: h, committer: committer, store: store, reports: reports, log: log}, nil
}

// IngestBacklog returns how many requests wait to be stored, or share a write with others, because they arrive faster
// than they are written. It is 0 on an idle server and while single requests are written.
func (s *Server) IngestBacklog() int { return s.committer.Backlog() }

// ReadyCheck returns why the server is not ready, nil while requests are served and valid tokens are known.
func (s *Server) ReadyCheck() error {
	err := s.options.Schemas.Verdict()
	switch {
	case s.handler.stopping.Load():
		return errors.New("the webhook server is stopping")
	case err != nil:
		return err
	case !s.handler.ready():
		return errors.New("the webhook server's caches are not synced")
	case s.listener.Load() == nil:
		return errors.New("the webhook server is not listening yet")
	}
	return nil
}

// Start serves until ctx ends, and then drains: it keeps serving for the shutdown delay while load balancers learn that
// it is not ready, lets the requests in flight end, and waits for the writes in flight.
func (s *Server) Start(ctx context.Context) error {
	listener, err := s.options.Listener.Listen(ctx, "tcp", s.options.BindAddress)
	if err != nil {
		return fmt.Errorf("opening the webhook server's address: %w", err)
	}
	// The reporter and the certificate watcher end when the server has, not when ctx does.
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	group, failed := errgroup.WithContext(background)
	tlsConfig, err := s.startCertWatcher(background, group)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	group.Go(func() error {
		s.reports.run(background)
		return nil
	})
	group.Go(func() error {
		s.handler.captures.Run(background)
		return nil
	})

	server := httpserver.New(httpserver.Options{
		Handler: s.handler, Log: s.log, Connections: httpserver.MaxConnections, TLS: tlsConfig, HTTP2: s.options.EnableHTTP2,
	})
	s.listener.Store(&listener)
	s.log.Info("Serving webhooks", "address", listener.Addr().String(), "tls", tlsConfig != nil)
	group.Go(func() error { return server.Serve(listener) })

	select {
	case <-ctx.Done():
	case <-failed.Done():
	}
	s.handler.stopping.Store(true)
	if failed.Err() == nil {
		s.log.Info("Stopping, still serving", "delay", s.options.ShutdownDelay.String())
		select {
		case <-time.After(s.options.ShutdownDelay):
		case <-failed.Done():
		}
	}
	s.drain(server)
	cancel()
	if err := group.Wait(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving webhooks: %w", err)
	}
	return nil
}

func (s *Server) drain(server *httpserver.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		s.log.Error(err, "Aborted requests while stopping")
		_ = server.Close() // the listener is closed already, and the connections are lost anyway
	}
	ctx, cancel = context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := s.committer.Close(ctx); err != nil {
		s.log.Error(err, "Aborted writes while stopping")
	}
	s.store.Close()
}

// startCertWatcher reads the certificate and keeps reading it when it changes. It returns nil without TLS.
func (s *Server) startCertWatcher(ctx context.Context, group *errgroup.Group) (*tls.Config, error) {
	if s.options.TLSCertPath == "" {
		return nil, nil
	}
	config, watcher, err := httpserver.Certificate(s.options.TLSCertPath)
	if err != nil {
		return nil, fmt.Errorf("reading the webhook server's certificate: %w", err)
	}
	group.Go(func() error {
		if err := watcher.Start(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("watching the webhook server's certificate: %w", err)
		}
		return nil
	})
	return config, nil
}
