// Command devcluster is "make run": it starts a control plane, or takes the cluster that KUBECONFIG names,
// installs Tocsin's CRDs and a demo WebhookIntegration with a new token, runs the manager binary, prints what to
// try, and tells how the demo's Incidents change. A manager that is killed is started again, as in a cluster. When
// it is told to stop, it stops everything that it started.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
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

	// tailLines is how much is shown of what a program has said that ended by itself.
	tailLines = 20
)

type options struct {
	manager string
	folder  string
	port    int
	kubectl string // the command that gets kubectl

	alertmanagers string // the file of the Alertmanagers to forward to; empty: none
	archiver      string // the archiver's binary
	archive       string // the folder to archive to; empty: none
}

func main() {
	var o options
	flag.StringVar(&o.manager, "manager", filepath.Join(testenv.Root(), "bin", "manager"), "the manager binary")
	flag.StringVar(&o.folder, "folder", filepath.Join(testenv.Root(), "bin", "run"), "where the log and the kubeconfig go")
	flag.IntVar(&o.port, "port", 8080, "the port on 127.0.0.1 that alerts are posted to")
	flag.StringVar(&o.kubectl, "kubectl", filepath.Join(testenv.Root(), "hack", "control-plane.sh"), "the command that gets kubectl")
	flag.StringVar(&o.alertmanagers, "alertmanager-config", "", "forward Incidents to the Alertmanagers of this `file`")
	flag.StringVar(&o.archiver, "archiver", filepath.Join(testenv.Root(), "bin", "archiver"), "the archiver binary")
	flag.StringVar(&o.archive, "archive", "", "archive ended episodes to this `folder`")
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
func run(ctx context.Context, o options, out io.Writer) error {
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
	demo := demonstration{address: address, cluster: target}
	err = demo.serve(ctx, o, folder, start, out)
	if ctx.Err() != nil {
		err = nil // it is there because ctx has ended
	}
	if len(demo.programs) > 0 && demo.programs[0].runs() {
		_, _ = fmt.Fprintln(out, "\nStopping.")
	}
	for _, p := range slices.Backward(demo.programs) {
		err = errors.Join(err, p.close())
	}
	return errors.Join(err, target.close())
}

// serve starts the programs and runs them until ctx ends.
func (d *demonstration) serve(ctx context.Context, o options, folder string, start time.Time, out io.Writer) (err error) {
	select {
	case <-ctx.Done():
		return nil
	default:
	}
	if d.token, err = d.cluster.install(ctx); err != nil {
		return err
	}
	if err := d.startPrograms(o, folder); err != nil {
		return err
	}
	for _, p := range d.programs {
		if err := p.waitReady(ctx); err != nil {
			return err
		}
	}
	d.findKubectl()
	_, _ = fmt.Fprintf(out, "Tocsin is ready, after %.1f s. Ctrl-C stops it%s.\n"+
		"The manager's log: %s\nThe manager's metrics: %s\n\n",
		time.Since(start).Seconds(), d.cluster.leaves(), d.programs[0].log.Name(), d.programs[0].MetricsURL)
	if err := d.print(out); err != nil {
		return err
	}
	return d.accompany(ctx, o.kubectl, out)
}

// startPrograms starts the manager, and the archiver if there is an archive.
func (d *demonstration) startPrograms(o options, folder string) error {
	manager := testenv.ManagerOptions{Binary: o.manager, Args: []string{
		"--webhook-bind-address=" + d.address,
		"--shutdown-delay=0s", // no load balancer has to hear of it
	}}
	if o.alertmanagers != "" {
		manager.Args = append(manager.Args, "--alertmanager-config="+o.alertmanagers)
	}
	if o.archive == "" {
		return d.startProgram("manager", folder, manager)
	}
	path, err := filepath.Abs(o.archive)
	if err != nil {
		return fmt.Errorf("finding the folder of the archive: %w", err)
	}
	d.archive = "file://" + path
	manager.Args = append(manager.Args, "--archive-required")
	if err := d.startProgram("manager", folder, manager); err != nil {
		return err
	}
	return d.startProgram("archiver", folder, testenv.ManagerOptions{Binary: o.archiver, Archive: d.archive + "?create_dir=true"})
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

// program is the manager or the archiver at work.
type program struct {
	*testenv.Manager

	name string
	log  *os.File
}

// startProgram starts one with a log in the folder.
func (d *demonstration) startProgram(name, folder string, options testenv.ManagerOptions) (err error) {
	if options.Log, err = os.Create(filepath.Join(folder, name+".log")); err != nil { // in a folder of the user's
		return fmt.Errorf("opening the log of the %s: %w", name, err)
	}
	options.Kubeconfig = d.cluster.kubeconfig
	process, err := testenv.StartManager(options)
	if err != nil {
		return errors.Join(err, options.Log.Close())
	}
	d.programs = append(d.programs, &program{process, name, options.Log})
	return nil
}

func (p *program) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := p.WaitReady(ctx); err != nil {
		return fmt.Errorf("%w%s", err, p.tail())
	}
	return nil
}

func (p *program) runs() bool {
	select {
	case <-p.Exited():
		return false
	default:
		return true
	}
}

// keepRunning starts the program again when it is killed, until ctx ends. It returns an error if it ended in another way.
func (p *program) keepRunning(ctx context.Context, out io.Writer) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.Exited():
		}
		ended := p.Stop() // it has
		if exit, is := errors.AsType[*exec.ExitError](ended); !is || exit.Exited() {
			return fmt.Errorf("the %s ended by itself: %w%s", p.name, errors.Join(ended, errors.New("nobody told it to")), p.tail())
		}
		_, _ = fmt.Fprintf(out, "The %s ended (%v). Starting it again.\n", p.name, ended)
		if err := p.Start(); err != nil {
			return err
		}
		if err := p.waitReady(ctx); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "The %s is ready again.\n", p.name)
	}
}

// tail is the end of the program's log.
func (p *program) tail() string {
	content, err := os.ReadFile(p.log.Name())
	if err != nil {
		return ""
	}
	return fmt.Sprintf("\nThe end of its log (%s):\n%s", p.log.Name(), lastLines(string(content)))
}

// lastLines returns the last lines of a text.
func lastLines(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}

// close stops the program. How it ended by itself has been reported.
func (p *program) close() error {
	if p.runs() {
		return errors.Join(p.Stop(), p.log.Close())
	}
	return p.log.Close()
}
