// Command alertmanager is "make test-alertmanager": it runs two managers and two clustered, real Alertmanagers with a real
// receiver of notifications, breaks each of them, and judges by the notifications that the receiver got: no missing
// page, no false resolve, and at most one duplicate for each fault.
//
// Times are scaled down: the lease of forwarded alerts is one minute instead of 15, so an outage of 40 seconds stands for one
// of ten minutes (factor 15).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// runTimeout ends a run that hangs.
const runTimeout = 20 * time.Minute

// options are the flags.
type options struct {
	manager, alertmanager string
	short, scale          bool
	run                   string
}

func main() {
	var o options
	bin := filepath.Join(testenv.Root(), "bin")
	flag.StringVar(&o.manager, "manager", filepath.Join(bin, "manager"), "the manager")
	flag.StringVar(&o.alertmanager, "alertmanager", filepath.Join(bin, "tools", "alertmanager"), "Alertmanager")
	flag.BoolVar(&o.short, "short", false, "only the life cycle, one manager: about 20 seconds")
	flag.BoolVar(&o.scale, "scale", false, "only the memory for 10,000 open Incidents")
	flag.StringVar(&o.run, "run", "", "only the scenarios whose names match this regular expression")
	flag.Parse()
	programs := []string{o.manager, o.alertmanager}
	testenv.RunSuite("alertmanager", runTimeout, programs, func(ctx context.Context, folder string) error {
		return execute(ctx, o, folder)
	})
}

// execute runs the scenarios.
func execute(ctx context.Context, o options, folder string) (err error) {
	if o.scale {
		return measureMemory(ctx, o, folder)
	}
	r, err := startRig(ctx, o, folder)
	defer func() { err = errors.Join(err, r.close()) }()
	if err != nil {
		return err
	}
	only, err := regexp.Compile(o.run)
	if err != nil {
		return err
	}
	begin := time.Now()
	for _, s := range scenarios {
		if o.short && !s.short || !only.MatchString(s.name) {
			continue
		}
		start := time.Now()
		if err := s.run(ctx, r); err != nil {
			return fmt.Errorf("%s: %w\n%s", s.name, err, r.receiver.history())
		}
		fmt.Printf("ok  %-80s %5.1f s\n", s.name, time.Since(start).Seconds())
	}
	if err := r.judge(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, r.receiver.history())
	}
	fmt.Printf("\n%s\nPassed in %.0f s.\n", r.receiver.summary(), time.Since(begin).Seconds())
	return nil
}
