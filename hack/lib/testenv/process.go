package testenv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a program that can be frozen, killed and started again. Its methods may be called at the
// same time.
type Process struct {
	// ReadyURL answers 200 when the program is ready. Empty: it is so at once.
	ReadyURL string

	path string
	args []string
	env  []string // besides that of this process
	log  *os.File

	mu      sync.Mutex
	command *exec.Cmd
	exited  chan struct{}
	err     error // how it ended, when exited is closed
}

// NewProcess describes a program, not yet started. What it prints goes to log, which may be nil.
func NewProcess(log *os.File, path string, args ...string) *Process {
	return &Process{path: path, args: args, log: log}
}

// Start starts the program; it does nothing when it runs already.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return nil
	}
	command := exec.Command(p.path, p.args...)
	command.Env = append(os.Environ(), p.env...)
	command.Stdout, command.Stderr = p.log, p.log
	// It must not outlive the one who started it, nor get the Ctrl-C that is for that one.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.path, err)
	}
	exited := make(chan struct{})
	p.command, p.exited = command, exited
	go func() {
		p.err = command.Wait()
		close(exited)
	}()
	return nil
}

func (p *Process) running() bool {
	if p.command == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// StartReady starts those of the programs that do not run, and waits until all are ready. It fails when one exits.
func StartReady(ctx context.Context, programs ...*Process) error {
	for _, p := range programs {
		if err := p.Start(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, p := range programs {
		if err := p.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readyTimeout is how long programs may take to start on a busy machine.
const readyTimeout = 3 * time.Minute

// WaitReady waits until the program is ready; it fails when the program exits or ctx ends.
func (p *Process) WaitReady(ctx context.Context) error {
	for p.ReadyURL != "" {
		asked, cancel := context.WithTimeout(ctx, metricTimeout)
		_, err := Call(asked, http.MethodGet, p.ReadyURL, "")
		cancel()
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to become ready: %w", p.path, ctx.Err())
		case <-p.Exited():
			return fmt.Errorf("%s exited: %w", p.path, errors.Join(p.err, errors.New("before it was ready")))
		case <-time.After(awaitPoll):
		}
	}
	return nil
}

// SetArg gives the flag that begins like this another value from the next start on.
func (p *Process) SetArg(flag, value string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, arg := range p.args {
		if strings.HasPrefix(arg, flag+"=") {
			p.args[i] = flag + "=" + value
		}
	}
}

// Freeze stops the program in its tracks until Thaw.
func (p *Process) Freeze() error { return p.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen program go on.
func (p *Process) Thaw() error { return p.Signal(syscall.SIGCONT) }

// Kill ends the program at once, frozen or not, as a crash would, and waits until it is gone.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		_ = p.command.Process.Kill()
		<-p.exited
	}
}

// Stop asks the program to end, as Kubernetes does, waits until it is gone and returns how it ended.
func (p *Process) Stop() error {
	_ = p.Signal(syscall.SIGTERM)
	<-p.Exited()
	return p.err
}

// Signal sends a signal.
func (p *Process) Signal(signal os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.command == nil {
		return fmt.Errorf("%s was never started", p.path)
	}
	return p.command.Process.Signal(signal)
}

// Exited is closed when the program has ended.
func (p *Process) Exited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exited
}

// PID is the process id.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.command.Process.Pid
}

// Memory returns the memory that a process holds, in bytes, and the most that it ever held.
func Memory(pid int) (now, peak int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		var kilobytes int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kilobytes); n == 1 {
			now = kilobytes << 10
		}
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); n == 1 {
			peak = kilobytes << 10
		}
	}
	return now, peak, err
}

// FreeAddresses finds n addresses on the loopback interface that nobody listens on. By default, no system gives these ports to
// connections, or to those who ask for any port: they stay free while a server is away.
func FreeAddresses(n int) ([]string, error) {
	const first, count, attempts = 15_000, 12_000, 100
	var addresses []string
	for range attempts {
		listener, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", first+rand.IntN(count)))
		if err != nil {
			continue
		}
		defer func() { _ = listener.Close() }() // at the end, so that no address comes twice
		if addresses = append(addresses, listener.Addr().String()); len(addresses) == n {
			return addresses, nil
		}
	}
	return nil, fmt.Errorf("%d of %d ports found", len(addresses), n)
}
