package simulation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
	"github.com/tocsin-dev/tocsin/hack/lib/wallclock"
	"github.com/tocsin-dev/tocsin/internal/app"
)

// lease is the namespace of the replicas' lease.
const leaseNamespace = "tocsin-system"

// replica is a place for one process of the program after another.
type replica struct {
	world   *world
	name    string
	clock   wallclock.Clock
	process *process // nil: none runs
	all     []*process
	older   bool                // the next process is of the baseline
	args    []string            // more flags
	dialer  alertmanager.Dialer // of Alertmanagers

	running atomic.Bool
	// troubled is until when, in nanoseconds of Unix time, it may miss AlertEvents that come and go, or fail to delete them.
	troubled atomic.Int64
}

// recoveryTime is how long a replica needs after trouble until it watches again.
const recoveryTime = 20 * time.Second

// trouble notes that the replica may miss AlertEvents that come and go for a while.
func (r *replica) trouble(d time.Duration) {
	until := time.Now().Add(d + recoveryTime).UnixNano()
	r.troubled.Store(max(until, r.troubled.Load()))
}

// process is one run of the program, or of the archiver, which has no listener.
type process struct {
	*link
	listener *listener
	client   *http.Client
	stop     context.CancelFunc
	ended    chan struct{}
	err      error
}

// Listen implements webhookserver.Listener.
func (p *process) Listen(context.Context, string, string) (net.Listener, error) {
	return p.listener, nil
}

var errNobodyListens = errors.New("connect: connection refused: nobody listens")

// flags are the replicas' command line.
func (s *Settings) flags() []string {
	flags := []string{
		"--webhook-bind-address=127.0.0.1:8080", "--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--leader-election-namespace=" + leaseNamespace, "--shutdown-delay=0s",
		fmt.Sprintf("--max-in-flight-writes=%d", s.Writes),
	}
	if s.Elect {
		flags = append(flags, "--leader-elect")
	}
	if s.Archivers > 0 {
		flags = append(flags, "--archive-required")
	}
	if s.MaxIncidents > 0 {
		flags = append(flags, fmt.Sprintf("--max-incidents=%d", s.MaxIncidents), "--namespace-share=0.5")
	}
	return flags
}

// start starts a process, unless one runs.
func (r *replica) start() error {
	if r.process != nil {
		return nil
	}
	w, run := r.world, program(presentProgram)
	if r.older {
		run = olderProgram
	}
	flags := append(w.story.flags(), r.args...)
	p := &process{link: newLink(w.network, r.name), listener: newListener(), ended: make(chan struct{})}
	p.client = &http.Client{Timeout: senderTimeout, Transport: &http.Transport{
		DialContext: p.listener.dial, DisableKeepAlives: true, DisableCompression: true,
	}}
	config := w.server.Config(r.name, p)
	config.Transport = &transport{p.link, config.Transport}
	log := logr.Discard()
	if w.log != nil {
		log = w.log(r.name)
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	r.process = p
	r.all = append(r.all, p)
	r.running.Store(true)
	r.trouble(0)
	go func() {
		defer close(p.ended)
		p.err = run(ctx, flags, app.Environment{Config: config, Log: log, Clock: &r.clock, Listener: p, Dialer: r.dialer})
		stop()
		_ = p.listener.Close()
	}()
	return nil
}

// kill ends the process as kill -9 does.
func (r *replica) kill() {
	p := r.process
	if p == nil {
		return
	}
	r.process = nil
	r.running.Store(false)
	p.kill()
	p.listener.reset()
	p.stop()
}

// terminate ends the process as SIGTERM does.
func (r *replica) terminate() {
	if p := r.process; p != nil {
		r.process = nil
		r.running.Store(false)
		p.thaw()
		p.stop()
	}
}

// stopTimeout is how long a process may take to stop after SIGTERM: the termination grace period.
const stopTimeout = 45 * time.Second

// awaitAll waits for the end of processes, and returns why one did not end well.
func awaitAll(processes []*process) error {
	for _, p := range processes {
		select {
		case <-p.ended:
		case <-time.After(stopTimeout):
			return fmt.Errorf("%s does not stop within %s", p.link.client, stopTimeout)
		}
		if p.err != nil && !p.isDead() {
			return fmt.Errorf("%s failed: %w", p.link.client, p.err)
		}
	}
	return nil
}
