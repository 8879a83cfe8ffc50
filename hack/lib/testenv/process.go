package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// Process is a program that can be frozen, killed and started again. Its methods may be called at the
// same time.
type Process struct {
	path string
	args []string
	log  *os.File

	mu      sync.Mutex
	command *exec.Cmd
	exited  chan struct{}
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
	command.Stdout, command.Stderr = p.log, p.log
	// It must not outlive the one who started it, nor get the Ctrl-C that is for that one.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.path, err)
	}
	exited := make(chan struct{})
	p.command, p.exited = command, exited
	go func() {
		_ = command.Wait()
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
func (p *Process) Freeze() error { return p.signal(syscall.SIGSTOP) }

// Thaw lets a frozen program go on.
func (p *Process) Thaw() error { return p.signal(syscall.SIGCONT) }

// Kill ends the program at once, frozen or not, and waits until it is gone.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		_ = p.command.Process.Kill()
		<-p.exited
	}
}

// Stop asks the program to end, as Kubernetes does, and waits until it is gone.
func (p *Process) Stop() error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-p.exited
	return nil
}

func (p *Process) signal(signal os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.command == nil {
		return fmt.Errorf("%s was never started", p.path)
	}
	return p.command.Process.Signal(signal)
}
