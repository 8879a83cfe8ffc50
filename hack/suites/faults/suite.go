package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// suite runs scenarios one after the other on one control plane.
type suite struct {
	settings
	wanted *regexp.Regexp
	folder string

	rig     *rig
	shape   string // of the rig's replicas
	reports []*report
	rigs    int
}

// wants says whether the command line asks for what has this name.
func (s *suite) wants(name string, short bool) bool {
	if s.run != "" {
		return s.wanted.MatchString(name)
	}
	return short || !s.short
}

func (s *suite) runAll(ctx context.Context) (bool, error) {
	well := true
	for range s.rounds {
		for i := range scenarios {
			if s.wants(scenarios[i].name, scenarios[i].short) {
				well = s.runOne(ctx, &scenarios[i]) && well
			}
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
	}
	s.printTable()
	return well, nil
}

// runSoak runs scenarios at random, but for trials, until the time is over.
func (s *suite) runSoak(ctx context.Context) (bool, error) {
	well := true
	for until := time.Now().Add(s.soak); time.Now().Before(until) && ctx.Err() == nil; {
		chosen := &scenarios[rand.IntN(len(scenarios))]
		if chosen.trial == nil && (s.run == "" || s.wanted.MatchString(chosen.name)) {
			well = s.runOne(ctx, chosen) && well
		}
	}
	s.printTable()
	return well, ctx.Err()
}

// runOne runs a scenario and says whether all was well. A void run is made again, twice at the most.
func (s *suite) runOne(ctx context.Context, scenario *scenario) bool {
	for try := 0; ; try++ {
		began := time.Now()
		result, err := s.attempt(ctx, scenario)
		switch {
		case ctx.Err() != nil:
			return false
		case err != nil:
			result = cmp.Or(result, &report{})
			result.findings.Add("E: %v", err)
			s.dropRig() // nobody knows what state it is in
		case result.void != "" && len(result.findings) == 0 && try < 2:
			fmt.Printf("again  %-18s %s\n", scenario.name, result.void)
			continue
		}
		result.scenario, result.elapsed = scenario.name, time.Since(began)
		s.reports = append(s.reports, result)
		result.print()
		return result.verdict() == ok
	}
}

func (s *suite) attempt(ctx context.Context, scenario *scenario) (*report, error) {
	if scenario.trial != nil {
		return scenario.trial(ctx, s)
	}
	if err := s.prepareRig(ctx, scenario); err != nil {
		return nil, err
	}
	return s.rig.runScenario(ctx, scenario)
}

// prepareRig makes a rig with the replicas that the scenario needs, unless there is one.
func (s *suite) prepareRig(ctx context.Context, scenario *scenario) error {
	if s.rig == nil {
		rig, err := s.newRig(ctx, 0)
		if err != nil {
			return err
		}
		s.rig, s.shape = rig, ""
	}
	replicas, args := cmp.Or(scenario.replicas, 2), slices.Clone(scenario.args)
	if replicas > 1 {
		args = append(args, elect...)
	}
	shape := fmt.Sprint(replicas, args)
	if shape == s.shape {
		return s.rig.waitReady(ctx)
	}
	s.rig.stopReplicas()
	s.shape = shape
	return s.rig.startReplicas(ctx, replicas, args)
}

// newRig makes a rig with a folder of its own.
func (s *suite) newRig(ctx context.Context, quota int64) (*rig, error) {
	s.rigs++
	folder := filepath.Join(s.folder, fmt.Sprintf("rig-%d", s.rigs))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	if s.manager == "" {
		binary, flags := filepath.Join(s.folder, "manager"), []string{}
		if s.race {
			flags = append(flags, "-race")
		}
		if err := testenv.BuildManager(ctx, binary, flags...); err != nil {
			return nil, err
		}
		s.manager = binary
	}
	return newRig(ctx, folder, s.manager, quota)
}

func (s *suite) dropRig() {
	if s.rig != nil {
		s.rig.close()
	}
	s.rig = nil
}

// maxPrinted is how many findings of one run are printed.
const maxPrinted = 20

// The verdicts on a run.
const (
	ok     = "ok"
	broken = "BROKEN"
	void   = "void"
)

func (r *report) verdict() string {
	switch {
	case len(r.findings) > 0:
		return broken
	case r.void != "":
		return void
	default:
		return ok
	}
}

func (r *report) print() {
	fmt.Printf("%-6s %-18s %5.0f/s before, %d acknowledged, %d refused, %d unknown, %d second copies, "+
		"healed in %s, took %s",
		r.verdict(), r.scenario, r.rate, r.acknowledged, r.refused, r.unknown, r.copies,
		r.healed.Round(100*time.Millisecond), r.elapsed.Round(time.Second))
	if len(r.notes) > 0 {
		fmt.Printf(" (%s)", strings.Join(r.notes, "; "))
	}
	fmt.Println()
	for i, finding := range r.findings {
		if i == maxPrinted {
			fmt.Printf("       … and %d more\n", len(r.findings)-i)
			break
		}
		fmt.Println("      ", finding)
	}
}

// printTable prints the sums of all runs in Markdown.
func (s *suite) printTable() {
	fmt.Println("\n| Fault | Runs | Broken | Void | Acknowledged | Refused | Unknown | Second copies | Longest healing |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for i := range scenarios {
		var sum report
		verdicts := map[string]int{}
		runs := 0
		for _, r := range s.reports {
			if r.scenario != scenarios[i].name {
				continue
			}
			runs++
			verdicts[r.verdict()]++
			sum.acknowledged += r.acknowledged
			sum.refused += r.refused
			sum.unknown += r.unknown
			sum.copies += r.copies
			sum.healed = max(sum.healed, r.healed)
		}
		if runs > 0 {
			fmt.Printf("| %s | %d | %d | %d | %d | %d | %d | %d | %s |\n", scenarios[i].name, runs, verdicts[broken], verdicts[void],
				sum.acknowledged, sum.refused, sum.unknown, sum.copies, sum.healed.Round(100*time.Millisecond))
		}
	}
}
