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

	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
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
	ok := true
	for range s.rounds {
		for i := range scenarios {
			if s.wants(scenarios[i].name, scenarios[i].short) {
				ok = s.runOne(ctx, &scenarios[i]) && ok
			}
		}
		for _, t := range trials {
			if s.wants(t.name, t.short) {
				ok = s.runTrial(ctx, t) && ok
			}
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
	}
	s.printTable()
	return ok, nil
}

// runSoak runs scenarios at random until the time is over.
func (s *suite) runSoak(ctx context.Context) (bool, error) {
	ok := true
	for until := time.Now().Add(s.soak); time.Now().Before(until) && ctx.Err() == nil; {
		if chosen := &scenarios[rand.IntN(len(scenarios))]; s.run == "" || s.wanted.MatchString(chosen.name) {
			ok = s.runOne(ctx, chosen) && ok
		}
	}
	s.printTable()
	return ok, ctx.Err()
}

// runOne runs a scenario and says whether all was well. A void run is made again, twice at the most.
func (s *suite) runOne(ctx context.Context, scenario *scenario) bool {
	for try := 0; ; try++ {
		result, err := s.attempt(ctx, scenario)
		switch {
		case ctx.Err() != nil:
			return false
		case err != nil:
			result = &report{scenario: scenario.name, findings: oracle.Findings{"E: " + err.Error()}}
			s.dropRig() // nobody knows what state it is in
		case result.void != "" && len(result.findings) == 0 && try < 2:
			fmt.Printf("again  %-18s %s\n", scenario.name, result.void)
			continue
		}
		s.reports = append(s.reports, result)
		result.print()
		return len(result.findings) == 0 && result.void == ""
	}
}

func (s *suite) attempt(ctx context.Context, scenario *scenario) (*report, error) {
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
		args = append(args, "--leader-elect", "--leader-election-namespace="+systemNamespace)
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

func (r *report) print() {
	verdict := "ok"
	switch {
	case len(r.findings) > 0:
		verdict = "BROKEN"
	case r.void != "":
		verdict = "void"
	}
	fmt.Printf("%-6s %-18s %5.0f/s before, %d acknowledged, %d refused, %d unknown, %d second copies, "+
		"healed in %s, took %s",
		verdict, r.scenario, r.rate, r.acknowledged, r.refused, r.unknown, r.copies,
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
	type sum struct {
		runs, broken, void                     int
		acknowledged, refused, unknown, copies int
		healed                                 time.Duration
	}
	sums := map[string]*sum{}
	var names []string
	for _, r := range s.reports {
		if sums[r.scenario] == nil {
			sums[r.scenario] = &sum{}
			names = append(names, r.scenario)
		}
		entry := sums[r.scenario]
		entry.runs++
		switch {
		case len(r.findings) > 0:
			entry.broken++
		case r.void != "":
			entry.void++
		}
		entry.acknowledged += r.acknowledged
		entry.refused += r.refused
		entry.unknown += r.unknown
		entry.copies += r.copies
		entry.healed = max(entry.healed, r.healed)
	}
	fmt.Println("\n| Fault | Runs | Broken | Void | Acknowledged | Refused | Unknown | Second copies | Longest healing |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for _, name := range names {
		e := sums[name]
		fmt.Printf("| %s | %d | %d | %d | %d | %d | %d | %d | %s |\n", name, e.runs, e.broken, e.void,
			e.acknowledged, e.refused, e.unknown, e.copies, e.healed.Round(100*time.Millisecond))
	}
}

// trial is a test that needs no running load, or a rig of its own.
type trial struct {
	name  string
	short bool
	run   func(ctx context.Context, s *suite) (*report, error)
}

func (s *suite) runTrial(ctx context.Context, t trial) bool {
	began := time.Now()
	result, err := t.run(ctx, s)
	if result == nil {
		result = &report{}
	}
	if err != nil {
		result.findings.Add("E: %v", err)
		s.dropRig()
	}
	result.scenario = t.name
	result.elapsed = time.Since(began)
	s.reports = append(s.reports, result)
	result.print()
	return len(result.findings) == 0
}
