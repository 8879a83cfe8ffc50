// Command devcluster is "make run": it starts a control plane, or takes the cluster that KUBECONFIG names,
// installs Tocsin's CRDs and a demo WebhookIntegration with a new token, runs the manager binary and prints
// what to try. When it is told to stop, or when the manager ends, it stops everything that it started.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	// readyTimeout bounds the wait for the manager to become ready.
	readyTimeout = 30 * time.Second

	// onceTimeout bounds the demonstration of --once.
	onceTimeout = 30 * time.Second

	// tailLines is how much of the manager's log is shown when it ended by itself.
	tailLines = 20
)

type options struct {
	manager string
	folder  string
	port    int
	once    bool
}

func main() {
	var o options
	flag.StringVar(&o.manager, "manager", filepath.Join(testenv.Root(), "bin", "manager"), "the manager binary")
	flag.StringVar(&o.folder, "folder", filepath.Join(testenv.Root(), "bin", "run"), "where the log and the kubeconfig go")
	flag.IntVar(&o.port, "port", 8080, "the port on 127.0.0.1 that alerts are posted to")
	flag.BoolVar(&o.once, "once", false, "fire and resolve the demo alert, and stop")
	flag.Parse()
	ctrl.SetLogger(logr.Discard()) // what fails here is returned

	// The signals stay caught until everything is stopped: a second Ctrl-C must not leave processes behind.
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, o, os.Stdout)
	release()
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

// run runs the manager until ctx ends.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	start := time.Now()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port))
	if err := checkFree(ctx, address); err != nil {
		return err
	}
	folder := filepath.Join(o.folder, strconv.Itoa(o.port))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("making the folder of the log: %w", err)
	}

	target, err := openCluster(folder, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.close()) }()
	if ctx.Err() != nil {
		return nil
	}
	token, err := target.install(ctx)
	if err != nil {
		return stopped(ctx, err)
	}

	managed, err := startManager(o.manager, address, target.kubeconfig, filepath.Join(folder, "manager.log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, managed.close(out)) }()
	if err := managed.waitReady(ctx); err != nil {
		return stopped(ctx, err)
	}
	demo := demonstration{address: address, token: token, cluster: target}
	_, _ = fmt.Fprintf(out, "Tocsin is ready, after %.1f s. Ctrl-C stops it.\n"+
		"The manager's log: %s\nThe manager's metrics: %s\n\n%s\n",
		time.Since(start).Seconds(), managed.log.Name(), managed.process.MetricsURL, demo.text())
	if o.once {
		once, cancel := context.WithTimeout(ctx, onceTimeout)
		defer cancel()
		return stopped(ctx, demo.play(once, out))
	}
	select {
	case <-ctx.Done():
		return nil
	case <-managed.process.Exited():
		return managed.death()
	}
}

// stopped drops an error that is there because ctx has ended.
func stopped(ctx context.Context, err error) error {
	if context.Cause(ctx) == nil {
		return err
	}
	return nil
}

// checkFree finds out, before anything is started, whether the address can be listened on.
func checkFree(ctx context.Context, address string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is taken, perhaps by another \"make run\"; \"make run PORT=8090\" uses another port", address)
	case err != nil:
		return fmt.Errorf("cannot listen on %s: %w; \"make run PORT=8090\" uses another port", address, err)
	}
	return listener.Close()
}

// managed is the manager at work.
type managed struct {
	process *testenv.Manager
	log     *os.File
}

func startManager(binary, address, kubeconfig, logPath string) (*managed, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the manager's log: %w", err)
	}
	process, err := testenv.StartManager(testenv.ManagerOptions{
		Binary:     binary,
		Kubeconfig: kubeconfig,
		Log:        log,
		Args: []string{
			"--webhook-bind-address=" + address,
			"--shutdown-delay=0s", // no load balancer has to hear of it
		},
	})
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return &managed{process: process, log: log}, nil
}

func (m *managed) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := m.process.WaitReady(ctx); err != nil {
		return fmt.Errorf("%w%s", err, m.tail())
	}
	return nil
}

// death says how the manager ended.
func (m *managed) death() error {
	return fmt.Errorf("the manager ended by itself: %w%s", errors.Join(m.process.Stop(), errors.New("nobody told it to")), m.tail())
}

// tail is the end of the manager's log.
func (m *managed) tail() string {
	content, err := os.ReadFile(m.log.Name())
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return fmt.Sprintf("\nThe end of its log (%s):\n%s", m.log.Name(), strings.Join(lines, "\n"))
}

func (m *managed) close(out io.Writer) error {
	var err error
	select {
	case <-m.process.Exited(): // has been reported
	default:
		_, _ = fmt.Fprintln(out, "\nStopping.")
		err = m.process.Stop()
	}
	return errors.Join(err, m.log.Close())
}
