package main

import (
	"cmp"
	"context"
	"errors"
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

// profiles are what the manager and the API server did during a load, by step.
type profiles struct {
	Manager   []share `json:"manager"`
	APIServer []share `json:"apiServer"`
}

// profile takes CPU profiles of the manager and of the API server for as long as a load lasts, or for profileTime, and writes
// them into a folder as SCENARIO.manager.pprof and SCENARIO.kube-apiserver.pprof. The returned function
// waits for them.
func (c *cluster) profile(ctx context.Context, folder string, s scenario) (wait func() (profiles, error)) {
	path := fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, int(cmp.Or(c.profileTime, s.load.Duration)/time.Second)))
	var taken profiles
	var errs [2]error
	var work sync.WaitGroup
	work.Go(func() {
		encoded, err := testenv.Call(ctx, http.MethodGet, "http://"+pprofAddress+path, "")
		taken.Manager, errs[0] = saveProfile(filepath.Join(folder, s.name+".manager.pprof"), []byte(encoded), err, managerSteps)
	})
	work.Go(func() {
		encoded, err := c.askAPIServer(ctx, path)
		taken.APIServer, errs[1] = saveProfile(filepath.Join(folder, s.name+".kube-apiserver.pprof"), encoded, err, apiServerSteps)
	})
	return func() (profiles, error) {
		work.Wait()
		return taken, errors.Join(errs[:]...)
	}
}

// saveProfile writes a profile into a file, and returns it by step.
func saveProfile(path string, encoded []byte, err error, list []step) ([]share, error) {
	if err != nil {
		return nil, fmt.Errorf("taking a profile: %w", err)
	}
	if err := os.WriteFile(path, encoded, 0o600); err != nil {
		return nil, err
	}
	return byStep(encoded, list)
}
