package testenv

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"
)

// managerTimeout is how long a manager may take to become ready on a busy machine.
const managerTimeout = time.Minute

// Manager is a running manager or archiver binary.
type Manager struct {
	*Process
	// WebhookURL is where alerts are posted: the endpoint without a token, with a slash at its end. Empty for an archiver.
	WebhookURL string
	// MetricsURL answers with the Prometheus metrics, without authentication.
	MetricsURL string
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
		return nil, err
	}
	m := &Manager{
		Process: NewProcess(options.Log, options.Binary,
			"--metrics-bind-address="+addresses[1], "--metrics-secure=false", "--health-probe-bind-address="+addresses[2]),
		MetricsURL: "http://" + addresses[1] + "/metrics",
	}
	m.ReadyURL = "http://" + addresses[2] + "/readyz"
	m.env = append([]string{"KUBECONFIG=" + options.Kubeconfig}, options.Env...)
	if options.Archive != "" {
		m.args = append(m.args, "--archive="+options.Archive)
	} else {
		m.args = append(m.args, "--webhook-bind-address="+addresses[0]) // Args may have another one
		m.WebhookURL = "http://" + addresses[0] + "/api/v1/events/webhook/"
	}
	m.args = append(m.args, options.Args...)
	return m, m.Start()
}

// RunManager starts a manager and waits until it is ready.
func RunManager(ctx context.Context, options ManagerOptions) (*Manager, error) {
	m, err := StartManager(options)
	if err != nil {
		return nil, err
	}
	if err := StartReady(ctx, m.Process); err != nil {
		m.Kill()
		return nil, err
	}
	return m, nil
}

// WaitKnown waits until the manager does not reject a token as unknown, unless it has exited or is an archiver.
func (m *Manager) WaitKnown(ctx context.Context, token string) error {
	if m.WebhookURL == "" {
		return nil
	}
	return Await(ctx, managerTimeout, func(ctx context.Context) error {
		select {
		case <-m.Exited():
			return nil
		default:
		}
		code, _, err := Send(ctx, http.MethodPost, m.WebhookURL+token+"?dryRun=true", `{"title":"known"}`)
		if err == nil && (code == http.StatusUnauthorized || code >= http.StatusInternalServerError) {
			err = fmt.Errorf("the manager answers %d to a new token", code)
		}
		return err
	})
}
