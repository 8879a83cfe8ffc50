// Command archive is "make test-archive": it runs two managers and two archivers with a real S3 server, breaks all of them, and
// judges by the records that the archive has and by the Incidents that were deleted: every ended episode has one record, and no
// Incident is deleted before.
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
const runTimeout = 40 * time.Minute

// options are the flags.
type options struct {
	manager, archiver, plugin, store string
	short                            bool
	run                              string
}

func main() {
	var o options
	bin := filepath.Join(testenv.Root(), "bin")
	flag.StringVar(&o.manager, "manager", filepath.Join(bin, "manager"), "the manager")
	flag.StringVar(&o.archiver, "archiver", filepath.Join(bin, "archiver"), "the archiver")
	flag.StringVar(&o.plugin, "plugin", filepath.Join(bin, "kubectl-tocsin"), "the kubectl plugin")
	flag.StringVar(&o.store, "store", filepath.Join(bin, "tools", "versitygw"), "the S3 server; empty: a folder, with -short")
	flag.BoolVar(&o.short, "short", false, "only what needs one process of each and no fault: about 30 seconds")
	flag.StringVar(&o.run, "run", "", "only the scenarios whose names match this regular expression")
	flag.Parse()
	programs := []string{o.manager, o.archiver, o.plugin}
	if o.store != "" {
		programs = append(programs, o.store)
	}
	testenv.RunSuite("archive", runTimeout, programs, func(ctx context.Context, folder string) error {
		return execute(ctx, o, folder)
	})
}

// execute runs the scenarios.
func execute(ctx context.Context, o options, folder string) (err error) {
	only, err := regexp.Compile(o.run)
	if err != nil {
		return err
	}
	begin := time.Now()
	r, err := startRig(ctx, o, folder)
	defer func() { err = errors.Join(err, r.close()) }()
	if err != nil {
		return err
	}
	for _, s := range scenarios {
		if o.short && !s.short || !only.MatchString(s.name) {
			continue
		}
		start := time.Now()
		if err := s.run(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if !o.short {
			if err := r.judge(ctx); err != nil {
				return fmt.Errorf("after %q: %w", s.name, err)
			}
		}
		fmt.Printf("ok  %-90s %5.1f s\n", s.name, time.Since(start).Seconds())
	}
	if err := r.judge(ctx); err != nil {
		return err
	}
	fmt.Printf("\n%s\nPassed in %.0f s.\n", r.summary, time.Since(begin).Seconds())
	return nil
}
