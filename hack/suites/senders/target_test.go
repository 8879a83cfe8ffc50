//go:build slow

package senders

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
)

// target is what Prometheus scrapes: disks that are so full, and an exporter that is up or down.
type target struct {
	*httptest.Server

	mu    sync.Mutex
	disks map[string]float64 // the used part, by device
	down  bool               // the exporter
}

// Paths of the target.
const (
	disksPath    = "/disks"
	exporterPath = "/exporter"
)

func startTarget() *target {
	t := &target{disks: map[string]float64{}}
	t.Server = httptest.NewServer(t)
	return t
}

// set says how full a disk is.
func (t *target) set(device string, used float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.disks[device] = used
}

// setDown makes the exporter fail, or work again.
func (t *target) setDown(down bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.down = down
}

// ServeHTTP answers a scrape.
func (t *target) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	switch {
	case request.URL.Path == exporterPath && t.down:
		http.Error(w, "down", http.StatusInternalServerError)
	case request.URL.Path == disksPath:
		for _, device := range slices.Sorted(maps.Keys(t.disks)) {
			_, _ = fmt.Fprintf(w, "disk_used_ratio{device=%q} %g\n", device, t.disks[device])
		}
	}
}
