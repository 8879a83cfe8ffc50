// Command senders is "make test-senders": it lets a real Prometheus with alerting rules and a real
// Alertmanager send to a real manager, and checks that the Incidents follow what Prometheus says: alerts fire,
// are repeated and are resolved, while the manager is restarted, killed, and away for longer than
// Alertmanager tries. Nothing may be lost, nothing counted twice.
//
// The alerts take both ways to the manager: through Alertmanager to an integration with the preset
// alertmanager, and straight from Prometheus to one with the preset vmalert. On each way stands a relay that
// keeps account of every answer. Alertmanager also sends each group of alerts as to PagerDuty and to Opsgenie.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// runTimeout ends a run that hangs.
const runTimeout = 5 * time.Minute

// binaries are the programs to run.
type binaries struct{ manager, prometheus, alertmanager string }

func main() {
	var b binaries
	bin := filepath.Join(testenv.Root(), "bin")
	flag.StringVar(&b.manager, "manager", filepath.Join(bin, "manager"), "the manager")
	flag.StringVar(&b.prometheus, "prometheus", filepath.Join(bin, "tools", "prometheus"), "Prometheus")
	flag.StringVar(&b.alertmanager, "alertmanager", filepath.Join(bin, "tools", "alertmanager"), "Alertmanager")
	flag.Parse()
	programs := []string{b.manager, b.prometheus, b.alertmanager}
	testenv.RunSuite("senders", runTimeout, programs, func(ctx context.Context, folder string) error {
		return execute(ctx, b, folder)
	})
}

// execute runs all steps.
func execute(ctx context.Context, b binaries, folder string) (err error) {
	r, err := startRig(ctx, b, folder)
	defer func() { err = errors.Join(err, r.close()) }()
	if err != nil {
		return err
	}
	begin := time.Now()
	for _, s := range steps {
		start := time.Now()
		if err := s.run(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Printf("ok  %-75s %5.1f s\n", s.name, time.Since(start).Seconds())
	}
	fmt.Printf("\n%s\nPassed in %.0f s.\n", r.summary(), time.Since(begin).Seconds())
	return nil
}
