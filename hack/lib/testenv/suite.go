package testenv

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// RunSuite is the main function of a suite after its flags were parsed. The target of the Makefile is "test-" and its name. It
// runs for at most as long as the timeout, and exits with 1 when it fails. programs are the paths of those that it needs. The
// folder has its logs, which are kept when it fails.
func RunSuite(name string, timeout time.Duration, programs []string, run func(ctx context.Context, folder string) error) {
	ctrl.SetLogger(logr.Discard()) // what fails here is returned
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runSuite(ctx, name, timeout, programs, run)
	release()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func runSuite(
	ctx context.Context, name string, timeout time.Duration, programs []string, run func(ctx context.Context, folder string) error,
) (err error) {
	for _, path := range programs {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w; the target test-%s of the Makefile builds it", err, name)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	folder, err := os.MkdirTemp("", "tocsin-"+name+"-")
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(folder)
		} else {
			fmt.Println("The logs are in", folder)
		}
	}()
	return run(ctx, folder)
}

// leads is the metric of the manager that holds the lease.
var leads = regexp.MustCompile(`(?m)^leader_election_master_status\{[^}]*\} 1$`)

// Leader waits until one of the managers leads and returns its number.
func Leader(ctx context.Context, timeout time.Duration, managers []*Manager) (int, error) {
	at := -1
	return at, AwaitThat(ctx, timeout, "no manager leads", func(ctx context.Context) bool {
		for i, m := range managers {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			text, err := Call(ctx, http.MethodGet, m.MetricsURL, "")
			cancel()
			if err == nil && leads.MatchString(text) {
				at = i
				return true
			}
		}
		return false
	})
}

// Call sends a request with a JSON body, or none, and returns the answer, if it is a success.
func Call(ctx context.Context, method, url, body string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if response.StatusCode/100 != 2 {
		return "", fmt.Errorf("%s %s: %s %.300s", method, url, response.Status, answer)
	}
	return string(answer), err
}
