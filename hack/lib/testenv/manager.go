package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// readyPoll is how often a starting manager is asked whether it is ready.
const readyPoll = 50 * time.Millisecond

// managerTimeout is how long a manager may take to become ready on a busy machine.
const managerTimeout = time.Minute

// Manager is a running manager or archiver binary.
type Manager struct {
	// WebhookURL is where alerts are posted: the endpoint without a token, with a slash at its end. Empty for an archiver.
	WebhookURL string
	// MetricsURL answers with the Prometheus metrics, without authentication.
	MetricsURL string
	// ReadyURL answers 200 when the manager is ready.
	ReadyURL string

	options ManagerOptions
	args    []string
	command *exec.Cmd
	exited  chan struct{}
	err     error
}

// ManagerOptions say how a manager binary is run.
type ManagerOptions struct {
	// Binary is the path of the manager.
	Binary string
	// Kubeconfig is the path of the configuration of the cluster that it works on.
	Kubeconfig string
	// Log takes what it prints. Default: nothing is kept.
	Log *os.File
	// Archive is the URL of the bucket if the binary is an archiver.
	Archive string
	// Args are given besides the addresses.
	Args []string
	// Env is added to the environment, as name=value.
	Env []string
}

// StartManager starts a manager on free ports of the loopback interface. It does not wait until the
// manager is ready.
func StartManager(options ManagerOptions) (*Manager, error) {
	addresses, err := FreeAddresses(3)
	if err != nil {
		return nil, fmt.Errorf("finding free ports: %w", err)
	}
	m := &Manager{
		MetricsURL: "http://" + addresses[1] + "/metrics",
		ReadyURL:   "http://" + addresses[2] + "/readyz",
		options:    options,
		args: append([]string{
			"--metrics-bind-address=" + addresses[1],
			"--metrics-secure=false",
			"--health-probe-bind-address=" + addresses[2],
		}, options.Args...),
	}
	if options.Archive != "" {
		m.args = append(m.args, "--archive="+options.Archive)
	} else {
		m.args = append([]string{"--webhook-bind-address=" + addresses[0]}, m.args...) // Args may have another one
		m.WebhookURL = "http://" + addresses[0] + "/api/v1/events/webhook/"
	}
	return m, m.Start()
}

// RunManager starts a manager and waits until it is ready.
func RunManager(ctx context.Context, options ManagerOptions) (*Manager, error) {
	m, err := StartManager(options)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, managerTimeout)
	defer cancel()
	if err := m.WaitReady(ctx); err != nil {
		m.Kill()
		return nil, err
	}
	return m, nil
}

// UseBinary has another binary run at the next Start.
func (m *Manager) UseBinary(path string) { m.options.Binary = path }

// Start starts the manager again, on the same addresses, after it was stopped or killed.
func (m *Manager) Start() error {
	command := exec.Command(m.options.Binary, m.args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+m.options.Kubeconfig)
	command.Env = append(command.Env, m.options.Env...)
	command.Stdout, command.Stderr = m.options.Log, m.options.Log
	// A process group of its own: a Ctrl-C at the terminal is for the one who started it to handle.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting the manager: %w", err)
	}
	exited := make(chan struct{})
	m.command, m.exited, m.err = command, exited, nil
	go func() {
		m.err = command.Wait()
		close(exited)
	}()
	return nil
}

// WaitReady waits until the manager is ready; it fails when the manager exits or ctx ends.
func (m *Manager) WaitReady(ctx context.Context) error {
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	for {
		if m.ready(ctx) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the manager to become ready: %w", ctx.Err())
		case <-m.exited:
			return fmt.Errorf("the manager exited: %w", errors.Join(m.err, errors.New("before it was ready")))
		case <-ticker.C:
		}
	}
}

func (m *Manager) ready(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.ReadyURL, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// waitKnown waits until the manager does not reject a token as unknown, unless it has exited or is an archiver.
func (m *Manager) waitKnown(ctx context.Context, token string) error {
	if m.options.Archive != "" {
		return nil
	}
	return Await(ctx, managerTimeout, func(ctx context.Context) error {
		select {
		case <-m.exited:
			return nil
		default:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.WebhookURL+token+"?dryRun=true",
			strings.NewReader(`{"title":"known"}`))
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if code := response.StatusCode; code == http.StatusUnauthorized || code >= http.StatusInternalServerError {
			return fmt.Errorf("the manager answers %d to a new token", code)
		}
		return nil
	})
}

// PID is the process id.
func (m *Manager) PID() int { return m.command.Process.Pid }

// Signal sends a signal, SIGSTOP or SIGKILL for example.
func (m *Manager) Signal(signal os.Signal) error { return m.command.Process.Signal(signal) }

// Exited is closed when the process has ended.
func (m *Manager) Exited() <-chan struct{} { return m.exited }

// Kill ends the process at once, as a crash would, and waits until it is gone.
func (m *Manager) Kill() {
	_ = m.command.Process.Kill()
	<-m.exited
}

// Stop asks the process to end, as Kubernetes does, waits until it is gone and returns how it ended.
func (m *Manager) Stop() error {
	_ = m.command.Process.Signal(syscall.SIGTERM)
	<-m.exited
	return m.err
}

// FreeAddresses finds n addresses on the loopback interface that nobody listens on.
func FreeAddresses(n int) ([]string, error) {
	var (
		addresses []string
		listeners []net.Listener
		err       error
	)
	for range n {
		listener, listenErr := net.Listen("tcp", "127.0.0.1:0")
		if listenErr != nil {
			err = listenErr
			break
		}
		listeners = append(listeners, listener)
		addresses = append(addresses, listener.Addr().String())
	}
	for _, listener := range listeners {
		err = errors.Join(err, listener.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("listening (got %s): %w", strings.Join(addresses, ", "), err)
	}
	return addresses, nil
}
