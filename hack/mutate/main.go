// Command mutate finds small changes of the code, its mutants, that no test notices.
//
// It compiles all mutants of a package into one test binary, in which an environment variable switches one of them on. So a
// mutant costs a run of the tests, and no build. One that no test executes survives without a run.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// options say which mutants to try, and by which tests.
type options struct {
	only, by, arguments string
	every, jobs         int
}

func main() {
	o := options{}
	flag.StringVar(&o.only, "run", "", "regular expression of the mutants to try, such as merge.go or 'live → cache'")
	flag.StringVar(&o.by, "by", "", "folder of the tests that are to notice the mutants. Default: each package's own")
	flag.StringVar(&o.arguments, "arguments", "", "arguments of the test binary, such as -test.run=TestFold")
	flag.IntVar(&o.every, "every", 1, "try one mutant in so many")
	flag.IntVar(&o.jobs, "jobs", runtime.NumCPU(), "how many mutants to try at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := o.tryAll(ctx, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// tryAll tries the mutants of packages, which are named by their folders.
func (o *options) tryAll(ctx context.Context, packages []string) error {
	stop, err := startControlPlane()
	if err != nil {
		return err
	}
	defer stop()
	together := 1
	if o.by != "" {
		together = max(1, len(packages))
	}
	for group := range slices.Chunk(packages, together) {
		began, names := time.Now(), strings.Join(group, " ")
		tried, survivors, err := o.try(ctx, group)
		if err != nil {
			return fmt.Errorf("%s: %w", names, err)
		}
		noticed := tried - len(survivors)
		fmt.Printf("%s: %d of %d mutants noticed (%.1f %%) in %s\n", names, noticed, tried, 100*float64(noticed)/float64(max(1, tried)),
			time.Since(began).Round(time.Second))
		for _, survivor := range survivors {
			fmt.Println("   ", survivor)
		}
	}
	return nil
}

// startControlPlane starts a control plane that the tests use in place of their own. Tests make their own namespaces.
func startControlPlane() (stop func(), err error) {
	ctrl.SetLogger(logr.Discard())
	folder, err := os.MkdirTemp("", "tocsin-mutate-")
	if err != nil {
		return nil, err
	}
	cluster, err := testenv.StartCluster(folder)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	stop = func() {
		cluster.Stop()
		_ = os.RemoveAll(folder)
	}
	return stop, errors.Join(os.Setenv("USE_EXISTING_CLUSTER", "true"), os.Setenv("KUBECONFIG", cluster.Kubeconfig))
}

// try tries the mutants of packages in one test binary. It returns how many it tried, and those that no test notices.
func (o *options) try(ctx context.Context, packages []string) (tried int, survivors []string, err error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return 0, nil, err
	}
	folder, err := os.MkdirTemp("", "tocsin-mutate-")
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	mutants, overlay, err := instrument(folder, packages)
	if err != nil {
		return 0, nil, err
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !only.MatchString(m.name) || m.number%o.every != 0 })
	tests := suite{dir: cmp.Or(o.by, packages[0]), binary: filepath.Join(folder, "tests"), arguments: strings.Fields(o.arguments)}
	if err := tests.build(ctx, overlay); err != nil {
		return 0, nil, err
	}
	executed, err := tests.executed(ctx, filepath.Join(folder, "executed"))
	if err != nil {
		return 0, nil, err
	}
	return len(mutants), tests.survivors(ctx, mutants, executed, o.jobs), ctx.Err()
}

// suite is a test binary, and where it runs.
type suite struct {
	dir, binary string
	arguments   []string
	timeout     time.Duration // of one run
}

func (s *suite) build(ctx context.Context, overlay string) error {
	build := exec.CommandContext(ctx, "go", "test", "-C", s.dir, "-c", "-vet=off", "-overlay="+overlay, "-o", s.binary, ".")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the tests: %w: %s", err, output)
	}
	imports, err := exec.CommandContext(ctx, "go", "list", "-C", s.dir, "-deps", "-test", ".").Output()
	if bytes.Contains(imports, []byte("\npgregory.net/rapid\n")) {
		s.arguments = append(s.arguments, "-rapid.nofailfile")
	}
	return err
}

// survivors runs the tests with each mutant that they execute, some at a time, and returns the names of those that no test
// notices.
func (s *suite) survivors(ctx context.Context, mutants []mutant, executed map[int]bool, jobs int) (names []string) {
	noticed := make([]bool, len(mutants))
	var running errgroup.Group
	running.SetLimit(jobs)
	for i, m := range mutants {
		if executed[m.number] {
			running.Go(func() error {
				noticed[i] = s.run(ctx, fmt.Sprint("MUTANT=", m.number)) != nil
				return nil
			})
		}
	}
	_ = running.Wait()
	for i, m := range mutants {
		switch {
		case !executed[m.number]:
			names = append(names, m.name+" (not executed)")
		case !noticed[i]:
			names = append(names, m.name)
		}
	}
	return names
}

// executed runs the tests without a mutant, and returns those that they execute. It sets the timeout by the time that it took.
func (s *suite) executed(ctx context.Context, file string) (map[int]bool, error) {
	s.timeout = 10 * time.Minute
	began := time.Now()
	if err := s.run(ctx, "MUTANTS_EXECUTED="+file); err != nil {
		return nil, fmt.Errorf("the tests fail without a mutant: %w", err)
	}
	s.timeout = 3*time.Since(began) + 10*time.Second
	text, err := os.ReadFile(file)
	executed := map[int]bool{}
	for line := range strings.FieldsSeq(string(text)) {
		number := 0
		_, _ = fmt.Sscan(line, &number)
		executed[number] = true
	}
	return executed, err
}

// run runs the tests once. An error says that one failed, or that they took too long.
func (s *suite) run(ctx context.Context, environment string) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	arguments := append([]string{"-test.failfast", "-test.timeout=0"}, s.arguments...)
	command := exec.CommandContext(ctx, s.binary, arguments...)
	command.Dir, command.Env, command.WaitDelay = s.dir, append(os.Environ(), environment), time.Second
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, output.Bytes())
	}
	return nil
}
