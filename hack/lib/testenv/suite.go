package testenv

import (
	"context"
	"fmt"
	"os"
	"os/signal"
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

