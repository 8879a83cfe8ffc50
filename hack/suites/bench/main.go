// Command bench measures the manager: how fast it takes alerts in, how soon they are folded and what that
// costs, beside the rate of plain creates of one-alert AlertEvents and that of a real Alertmanager in the same run.
// It prints Markdown tables.
//
// It starts a control plane of its own and the real manager binary, and fails when an acknowledged alert
// was not folded exactly once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// options are what the command line says.
type options struct {
	binary       string
	only         string
	args         string
	profiles     string
	duration     time.Duration
	unique       int
	alertmanager string
	etcdMembers  int
	fsync        bool
	incidents    string
}

// takes reports whether the command line selects a measurement.
func (o options) takes(name string) bool {
	return slices.ContainsFunc(strings.Split(o.only, ","), func(part string) bool { return strings.Contains(name, part) })
}

func main() {
	var o options
	flag.StringVar(&o.binary, "manager", filepath.Join(testenv.Root(), "bin", "manager"), "the manager binary")
	flag.StringVar(&o.only, "only", "", "run only what has this, or one of several separated by commas, in its name: "+
		"closed-SENDERS-KEYS, scale, repeats, takeover, overload, noisy-neighbour")
	flag.StringVar(&o.incidents, "incidents", "1000,10000,100000", "the numbers of Incidents of scale, increasing")
	flag.StringVar(&o.args, "manager-args", "", "further flags of the manager, separated by spaces")
	flag.StringVar(&o.profiles, "profiles", "", "a folder for CPU profiles of the manager and the API server; empty for none")
	flag.DurationVar(&o.duration, "duration", 10*time.Second, "how long each load lasts")
	flag.IntVar(&o.unique, "unique", 20000, "how many alerts 64 senders of unique keys send at most; others a quarter")
	flag.StringVar(&o.alertmanager, "alertmanager", filepath.Join(testenv.Root(), "bin", "tools", "alertmanager"),
		"the Alertmanager binary that takes the same loads; empty for none")
	flag.IntVar(&o.etcdMembers, "etcd-members", 1, "how many etcd processes there are")
	flag.BoolVar(&o.fsync, "fsync", false, "let etcd write with fsync, as in production")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	c, err := startCluster(ctx, o)
	if err != nil {
		return err
	}
	err = c.measureAll(ctx)
	c.Stop()
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w; the logs are in %s", err, c.folder)
	}
	return errors.Join(err, os.RemoveAll(c.folder))
}

func (c *cluster) measureAll(ctx context.Context) error {
	defer c.stopManagers()
	if err := c.measureLoads(ctx); err != nil {
		return err
	}
	for _, m := range []struct {
		name    string
		measure func(context.Context) error
	}{
		{"scale", c.measureScale},
		{"repeats", c.measureRepeats},
		{"takeover", c.measureTakeovers},
		{"overload", c.measureOverload},
		{"noisy-neighbour", c.measureNoisyNeighbour}, // last: its backlog is left behind
	} {
		if !c.takes(m.name) {
			continue
		}
		if err := m.measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		c.stopManagers()
	}
	return nil
}
