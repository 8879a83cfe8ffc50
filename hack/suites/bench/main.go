// Command bench measures the manager: how fast it takes alerts in, how soon they are folded and what that
// costs, beside the rate of plain creates of one-alert AlertEvents and that of a real Alertmanager in the same run.
//
// It starts a control plane of its own and the real manager binary, and fails when an acknowledged alert
// was not folded exactly once.
package main

import (
	"cmp"
	"context"
	"encoding/json"
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
	binary   string
	out      string
	only     string
	args     string
	profiles string
	render   string
	plot     string
	duration time.Duration
	unique   int

	profileTime  time.Duration
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
	flag.StringVar(&o.out, "out", filepath.Join(testenv.Root(), "bin", "bench.json"), "where the figures are written as JSON")
	flag.StringVar(&o.only, "only", "", "run only what has this, or one of several separated by commas, in its name: "+
		"closed-SENDERS-KEYS, open-steady, scale, repeats, takeover, overload, noisy-neighbour")
	flag.StringVar(&o.incidents, "incidents", "1000,10000,100000", "the numbers of Incidents of scale, increasing")
	flag.StringVar(&o.args, "manager-args", "", "further flags of the manager, separated by spaces")
	flag.StringVar(&o.profiles, "profiles", "", "a folder for CPU profiles of the manager and the API server; empty for none")
	flag.DurationVar(&o.profileTime, "profile-time", 0, "how long the profiles last; default: as long as the load")
	flag.DurationVar(&o.duration, "duration", 10*time.Second, "how long each load lasts")
	flag.IntVar(&o.unique, "unique", 20000, "how many alerts 64 senders of unique keys send at most; others a quarter")
	flag.StringVar(&o.alertmanager, "alertmanager", filepath.Join(testenv.Root(), "bin", "tools", "alertmanager"),
		"the Alertmanager binary that takes the same loads; empty for none")
	flag.IntVar(&o.etcdMembers, "etcd-members", 1, "how many etcd processes there are")
	flag.BoolVar(&o.fsync, "fsync", false, "let etcd write with fsync, as in production")
	flag.StringVar(&o.render, "render", "", "measure nothing, and print this JSON file as Markdown tables")
	flag.StringVar(&o.plot, "plot", "", "with -render: the SVG file to draw a plot into")
	flag.Parse()
	if o.render != "" {
		if err := render(os.Stdout, o.render, o.plot); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctrl.SetLogger(zap.New())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// report is what the JSON file holds.
type report struct {
	Time    time.Time  `json:"time"`
	Results []*result  `json:"results"`
	Scale   []scaleRow `json:"scale,omitempty"`
	Repeats *noisyRow  `json:"repeats,omitempty"`
	Noisy   []noisyRow `json:"noisy,omitempty"`

	Takeovers []takeoverRow `json:"takeovers,omitempty"`
	Leases    []leaseRow    `json:"leases,omitempty"`
}

func run(ctx context.Context, o options) (err error) {
	c, err := startCluster(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	r := report{Time: time.Now().UTC()}
	// What was measured is worth keeping when a later load fails.
	defer func() { err = errors.Join(err, r.write(o.out)) }()
	printHeader()
	for _, s := range scenarios(o) {
		if !o.takes(s.name) {
			continue
		}
		result, err := c.measure(ctx, s)
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", s.name, err), c.printLog())
		}
		r.Results = append(r.Results, result)
		result.print()
	}
	printTargets(os.Stdout, r.Results)
	for _, m := range []struct {
		name    string
		measure func() error
	}{
		{"scale", func() (err error) { r.Scale, err = c.measureScale(ctx, o); return err }},
		{"repeats", func() (err error) { r.Repeats, err = c.measureRepeats(ctx, o.duration); return err }},
		{"takeover", func() error {
			rows, rest, err := c.measureTakeovers(ctx)
			if r.Takeovers = rows; rest != nil {
				r.Leases = append(r.Leases, *rest)
			}
			return err
		}},
		{"overload", func() error {
			row, err := c.measureOverload(ctx, o.duration)
			if row != nil {
				r.Leases = append(r.Leases, *row)
			}
			return err
		}},
		// Last: its backlog is left behind.
		{"noisy-neighbour", func() (err error) { r.Noisy, err = c.measureNoisyNeighbour(ctx, o.duration); return err }},
	} {
		if !o.takes(m.name) {
			continue
		}
		if err := m.measure(); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", m.name, err), c.printLog())
		}
	}
	return nil
}

func (r *report) write(path string) error {
	encoded, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return cmp.Or(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, append(encoded, '\n'), 0o600))
}
