package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// pprofAddress is where the manager serves its profiles when they are asked for.
const pprofAddress = "127.0.0.1:16060"

// profile takes CPU profiles of the processes for as long as a load lasts, and writes them as SCENARIO.PROCESS.pprof into the
// folder for them, if there is one. The returned function waits for them, and returns how they divide by step.
func (c *cluster) profile(ctx context.Context, s scenario) (wait func() ([2][]share, error)) {
	var shares [2][]share
	if c.profiles == "" {
		return func() ([2][]share, error) { return shares, nil }
	}
	path := fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, int(s.load.Duration/time.Second)))
	ask := [2]func() (string, error){
		func() (string, error) { return testenv.Call(ctx, http.MethodGet, "http://"+pprofAddress+path, "") },
		func() (string, error) { return c.askAPIServer(ctx, path) },
	}
	var err error
	var work sync.WaitGroup
	work.Go(func() {
		err = testenv.SideBySide(len(processes), len(processes), func(i int) error {
			encoded, err := ask[i]()
			if err != nil {
				return fmt.Errorf("taking a profile: %w", err)
			}
			file := filepath.Join(c.profiles, s.name+"."+processes[i].name+".pprof")
			if err := os.WriteFile(file, []byte(encoded), 0o600); err != nil {
				return err
			}
			shares[i], err = byStep(encoded, processes[i].steps)
			return err
		})
	})
	return func() ([2][]share, error) {
		work.Wait()
		return shares, err
	}
}
