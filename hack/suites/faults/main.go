// Command faults proves what docs/guarantees.md promises. It runs real managers on a real etcd and two
// real API servers, puts load on them, injects one fault after the other, and compares what the
// senders were told with etcd's history and with the Incidents.
//
//	faults                  every scenario
//	faults --short          the short form
//	faults --run='kill|nospace' --rounds=5
//	faults --soak=1h        scenarios at random, for so long
//	faults --manager=FILE   with this manager, such as one with a seeded bug
//
// It exits 1 when a promise was broken, and prints a table in Markdown.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

type settings struct {
	short   bool
	race    bool
	keep    bool
	manager string
	run     string
	rounds  int
	soak    time.Duration
	attack  time.Duration
}

func main() {
	var s settings
	flag.BoolVar(&s.short, "short", false, "run the short form")
	flag.BoolVar(&s.race, "race", false, "build the managers with the race detector")
	flag.BoolVar(&s.keep, "keep", false, "keep the logs even when all is well")
	flag.StringVar(&s.manager, "manager", "", "path of the manager; by default it is built")
	flag.StringVar(&s.run, "run", "", "run only what matches this regular expression")
	flag.IntVar(&s.rounds, "rounds", 1, "how often to run each scenario")
	flag.DurationVar(&s.soak, "soak", 0, "run scenarios at random for so long")
	flag.DurationVar(&s.attack, "attack", 10*time.Minute, "how long hostile-bytes attacks")
	flag.Parse()
	log.SetLogger(logr.Discard()) // of the harness's own client

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := execute(ctx, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

func execute(ctx context.Context, s settings) (ok bool, err error) {
	wanted, err := regexp.Compile(s.run)
	if err != nil {
		return false, err
	}
	folder, err := os.MkdirTemp("", "tocsin-faults-")
	if err != nil {
		return false, err
	}
	defer func() {
		if ok && !s.keep {
			_ = os.RemoveAll(folder)
		} else {
			fmt.Println("\nThe logs are in", folder)
		}
	}()
	suite := &suite{settings: s, wanted: wanted, folder: folder}
	defer suite.dropRig()
	if s.soak > 0 {
		return suite.runSoak(ctx)
	}
	return suite.runAll(ctx)
}
