package testenv

import (
	"context"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/overlay"
)

// WaitTimeout is how long something that takes seconds may take on a busy machine.
const WaitTimeout = 45 * time.Second

// Rig is a control plane with the programs that run beside it, for one test. What goes wrong in its methods ends the test,
// and with the test everything ends that the rig has started.
type Rig struct {
	*Cluster
	// T is the test, or its part that runs.
	T *testing.T
	// Context ends with the test, at a Ctrl-C, and soon enough before the timeout of the test to end what was started.
	Context context.Context
	// Folder has the files and the logs, which are kept if the test fails.
	Folder string
}

// endTime is how long the end of everything may take.
const endTime = 20 * time.Second

// NewRig starts a control plane for a test that needs these programs.
func NewRig(t *testing.T, programs ...string) *Rig {
	t.Helper()
	return NewRigOf(t, ControlPlaneOptions{}, programs...)
}

// NewRigOf starts one as the options describe it, in a folder of its own.
func NewRigOf(t *testing.T, options ControlPlaneOptions, programs ...string) *Rig {
	t.Helper()
	ctrl.SetLogger(logr.Discard()) // what fails is returned
	for _, path := range programs {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%v; the target of this suite in the Makefile builds it", err)
		}
	}
	ctx, release := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(release)
	if deadline, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-endTime))
		t.Cleanup(cancel)
	}
	pattern := "tocsin-" + strings.ReplaceAll(t.Name(), "/", "-") + "-"
	folder, err := os.MkdirTemp("", pattern) //nolint:usetesting // it has to stay if the test fails
	r := &Rig{T: t, Context: ctx, Folder: folder}
	r.Must(err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("The logs are in", folder)
		} else if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	options.Folder = folder
	r.Cluster, err = StartClusterOf(ctx, options)
	r.Must(err)
	t.Cleanup(r.Stop)
	return r
}

// Run runs a part of the test. If it fails, no other one runs.
func (r *Rig) Run(name string, part func()) {
	t := r.T
	t.Helper()
	ok := t.Run(name, func(t *testing.T) {
		r.T = t
		part()
	})
	if r.T = t; !ok {
		t.FailNow()
	}
}

// Must ends the test if there is an error.
func (r *Rig) Must(err error) {
	r.T.Helper()
	if err != nil {
		r.T.Fatal(err)
	}
}

// Await tries until there is no error, for so long.
func (r *Rig) Await(timeout time.Duration, attempt func(context.Context) error) {
	r.T.Helper()
	r.Must(Await(r.Context, timeout, attempt))
}

// AwaitThat tries until done is true, for WaitTimeout.
func (r *Rig) AwaitThat(message string, done func(context.Context) bool) {
	r.T.Helper()
	r.Must(AwaitThat(r.Context, WaitTimeout, message, done))
}

// Pause waits for so long.
func (r *Rig) Pause(d time.Duration) {
	r.T.Helper()
	if !Pause(r.Context, d) {
		r.T.Fatal(context.Cause(r.Context))
	}
}

// Write writes a file of the folder, and returns its path.
func (r *Rig) Write(name, text string) string {
	r.T.Helper()
	path := filepath.Join(r.Folder, name)
	r.Must(os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Integrate makes a namespace and in it a WebhookIntegration of the same name, and returns its token.
func (r *Rig) Integrate(name string, spec v1alpha1.WebhookIntegrationSpec) (token string) {
	r.T.Helper()
	token, err := r.Cluster.Integrate(r.Context, name, name, spec)
	r.Must(err)
	return token
}

// log returns the log of a program.
func (r *Rig) log(name string) *os.File {
	r.T.Helper()
	file, err := os.OpenFile(filepath.Join(r.Folder, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	r.Must(err)
	r.T.Cleanup(func() { _ = file.Close() })
	return file
}

// Process describes a program, which Start starts. It is ready when readyURL answers 200, or at once if that is empty.
func (r *Rig) Process(name, readyURL, path string, args ...string) *Process {
	r.T.Helper()
	p := NewProcess(r.log(name), path, args...)
	p.ReadyURL = readyURL
	r.T.Cleanup(p.Kill)
	return p
}

// Start starts programs and waits until each is ready.
func (r *Rig) Start(programs ...*Process) {
	r.T.Helper()
	r.Must(StartReady(r.Context, programs...))
}

// Manager runs a manager, by default bin/manager, or an archiver, and waits until it is ready.
func (r *Rig) Manager(name string, options ManagerOptions) *Manager {
	r.T.Helper()
	if options.Binary == "" {
		options.Binary = Program("manager")
	}
	if options.Archive == "" {
		options.Args = append([]string{"--shutdown-delay=0s"}, options.Args...)
	}
	options.Log = r.log(name)
	m, err := r.RunManager(r.Context, options)
	r.Must(err)
	return m
}

// Program returns the path of a program that a target of the Makefile builds.
func Program(name string) string { return filepath.Join(Root(), "bin", name) }

// Elect are the flags of managers that elect a leader.
var Elect = []string{"--leader-elect", "--leader-election-namespace=default"}

// SkewedManager builds a manager whose clock is wrong by TOCSIN_CLOCK_SKEW in its environment, and returns its path.
func (r *Rig) SkewedManager() string {
	r.T.Helper()
	binary, folder := filepath.Join(r.Folder, "skewed"), filepath.Join(r.Folder, "source-of-skewed")
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	file, _, err := overlay.Write(Root(), folder, filepath.Join(Root(), "hack", "suites", "faults", "bugs", "clock.patch"))
	r.Must(err)
	r.Must(BuildManager(r.Context, binary, "-overlay="+file))
	return binary
}

// Leader waits until one of the managers leads and returns its number.
func (r *Rig) Leader(managers []*Manager) int {
	r.T.Helper()
	at, err := Leader(r.Context, WaitTimeout, managers)
	r.Must(err)
	return at
}

// Successor waits until another one than this leads.
func (r *Rig) Successor(managers []*Manager, number int) {
	r.T.Helper()
	r.AwaitThat("nobody takes over", func(ctx context.Context) bool {
		now, err := Leader(ctx, WaitTimeout, managers)
		return err == nil && now != number
	})
}

// Wake lets a frozen manager go on that has been succeeded: it exits, and is started again, or goes on as a follower.
func (r *Rig) Wake(m *Manager) {
	r.T.Helper()
	r.Must(m.Thaw())
	select {
	case <-m.Exited():
		r.Start(m.Process)
	case <-time.After(WaitTimeout / 4):
	}
}

// Post posts an alert to any of the managers that accepts it, each of which may take so long, and returns the answer.
func (r *Rig) Post(timeout time.Duration, managers []*Manager, token, body string) (answer string) {
	r.T.Helper()
	r.Await(WaitTimeout, func(ctx context.Context) (err error) {
		for _, m := range managers {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			answer, err = Call(ctx, http.MethodPost, m.WebhookURL+token, body)
			cancel()
			if err == nil {
				return nil
			}
		}
		return err
	})
	return answer
}

// Alertmanager describes an Alertmanager with this configuration, which Start starts.
func (r *Rig) Alertmanager(name, program, address, config string, args ...string) *Process {
	r.T.Helper()
	return r.Process(name, "http://"+address+"/-/ready", program, append([]string{
		"--config.file=" + r.Write(name+".yml", config), "--storage.path=" + filepath.Join(r.Folder, name),
		"--web.listen-address=" + address,
	}, args...)...)
}

// Prometheus describes a Prometheus with this configuration, which Start starts.
func (r *Rig) Prometheus(program, address, config string, args ...string) *Process {
	r.T.Helper()
	return r.Process("prometheus", "http://"+address+"/-/ready", program, append([]string{
		"--config.file=" + r.Write("prometheus.yml", config), "--storage.tsdb.path=" + filepath.Join(r.Folder, "prometheus"),
		"--web.listen-address=" + address,
	}, args...)...)
}

// Addresses finds n addresses on the loopback interface that nobody listens on.
func (r *Rig) Addresses(n int) []string {
	r.T.Helper()
	addresses, err := FreeAddresses(n)
	r.Must(err)
	return addresses
}
