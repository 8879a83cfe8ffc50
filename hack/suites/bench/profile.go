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

// profile takes CPU profiles of the manager and of the API server for as long as a load lasts, or for profileTime, and writes
// them into a folder as SCENARIO.manager.pprof and SCENARIO.kube-apiserver.pprof. The returned function
// waits for them.
func (c *cluster) profile(ctx context.Context, folder string, s scenario) (wait func() error) {
	path := fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, int(cmp.Or(c.profileTime, s.load.Duration)/time.Second)))
	var errs [2]error
	var work sync.WaitGroup
	work.Go(func() {
		errs[0] = saveProfile(filepath.Join(folder, s.name+".manager.pprof"), func() ([]byte, error) {
			profile, err := testenv.Call(ctx, http.MethodGet, "http://"+pprofAddress+path, "")
			return []byte(profile), err
		})
	})
	work.Go(func() {
		errs[1] = saveProfile(filepath.Join(folder, s.name+".kube-apiserver.pprof"), func() ([]byte, error) {
			return c.askAPIServer(ctx, path)
		})
	})
	return func() error {
		work.Wait()
		return errors.Join(errs[:]...)
	}
}

func saveProfile(path string, take func() ([]byte, error)) error {
	profile, err := take()
	if err != nil {
		return fmt.Errorf("taking a profile: %w", err)
	}
	return os.WriteFile(path, profile, 0o600)
}
