package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// hunter plays stories of the simulation.
type hunter struct {
	sound string // the simulation without a bug
	runs  int    // the most stories for each bug
}

// hunt plays stories with a bug until one fails that does not fail without it.
func (h hunter) hunt(ctx context.Context, _ bug, overlay, folder string) (finding string, err error) {
	buggy := filepath.Join(folder, "buggy")
	if err := buildSimulation(ctx, buggy, "-overlay="+overlay); err != nil {
		return "", err
	}
	for played := 0; played < h.runs; {
		seed, finding, err := play(ctx, buggy, fmt.Sprintf("-first=%d", played+1), "-stop", fmt.Sprintf("-runs=%d", h.runs-played))
		if err != nil || finding == "" {
			return "", err
		}
		_, without, err := play(ctx, h.sound, fmt.Sprintf("-first=%d", seed), "-runs=1")
		if err != nil {
			return "", err
		}
		if without == "" {
			return fmt.Sprintf("%s (after %d stories)", finding, seed), nil
		}
		played = seed
	}
	return "", nil
}

func buildSimulation(ctx context.Context, path string, flags ...string) error {
	args := append([]string{"test", "-C", "hack/suites", "-c", "-o", path}, flags...)
	return testenv.Go(ctx, append(args, "./simulation")...)
}

var (
	failure  = regexp.MustCompile(`FAILED seed (\d+)`)
	findings = regexp.MustCompile(`(?m)^ *findings:\n *(.*)$`)
	lastSeed = regexp.MustCompile(`(?m)^seed (\d+)$`)
)

// play plays stories and returns the seed of the first that fails, and what was found.
func play(ctx context.Context, binary string, flags ...string) (seed int, finding string, err error) {
	command := exec.CommandContext(ctx, binary,
		append(flags, "-simulate=1h", "-test.run=^TestSimulate$", "-shrink=false", "-test.timeout=0")...)
	command.Env = append(os.Environ(), "GOMAXPROCS=1")
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err = command.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, "", nil
	case ctx.Err() != nil || !errors.As(err, &exit):
		return 0, "", errors.Join(err, ctx.Err())
	}
	text := output.String()
	if match := failure.FindStringSubmatch(text); match != nil {
		_, _ = fmt.Sscan(match[1], &seed)
		if found := findings.FindStringSubmatch(text); found != nil {
			return seed, found[1], nil
		}
		return seed, "a failure", nil
	}
	seeds := lastSeed.FindAllStringSubmatch(text, -1)
	if len(seeds) == 0 {
		return 0, "", fmt.Errorf("the simulation failed: %s", text)
	}
	_, _ = fmt.Sscan(seeds[len(seeds)-1][1], &seed)
	return seed, "the process crashed", nil
}
