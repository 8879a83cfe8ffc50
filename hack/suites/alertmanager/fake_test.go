//go:build slow

package alertmanager

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// fake is an Alertmanager that does everything wrong that one can, and notes when alerts arrive.
type fake struct {
	*httptest.Server
	stop chan struct{}

	mu      sync.Mutex
	mode    string // one of the modes
	refused string // the name of the Incident whose alert is rejected
	arrived map[arrival]time.Time
}

// arrival is the first post of an Incident in a state.
type arrival struct {
	incident string
	ended    bool
}

// Modes of the fake.
const (
	modeAccept = "accepts everything"
	modeReject = "rejects one alert, and every request that has it, with 400"
	modeError  = "answers 500"
	modeHang   = "never answers"
)

func startFake() *fake {
	f := &fake{stop: make(chan struct{}), mode: modeAccept, arrived: map[arrival]time.Time{}}
	f.Server = httptest.NewServer(f)
	return f
}

func (f *fake) close() {
	close(f.stop)
	f.CloseClientConnections()
	f.Close()
}

// behave changes the mode.
func (f *fake) behave(mode, refused string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mode, f.refused = mode, refused
}

// ServeHTTP answers a request of Alertmanager's API.
func (f *fake) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	at := time.Now()
	if request.Method == http.MethodGet {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("[]")) // there are no silences
		return
	}
	var alerts []struct {
		Labels map[string]string
		EndsAt time.Time
	}
	if err := json.NewDecoder(request.Body).Decode(&alerts); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	mode, refused := f.mode, f.refused
	f.mu.Unlock()
	switch mode {
	case modeError:
		http.Error(w, "out of order", http.StatusInternalServerError)
		return
	case modeHang:
		select {
		case <-f.stop:
		case <-request.Context().Done():
		}
		return
	case modeReject:
		for _, alert := range alerts {
			if alert.Labels[v1alpha1.ForwardedLabel] == refused {
				http.Error(w, "invalid label", http.StatusBadRequest)
				return
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, alert := range alerts {
		a := arrival{alert.Labels[v1alpha1.ForwardedLabel], alert.EndsAt.Before(at)}
		if _, known := f.arrived[a]; !known {
			f.arrived[a] = at
		}
	}
}

// arrivalOf is when an Incident arrived first in a state.
func (f *fake) arrivalOf(incident string, ended bool) (time.Time, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.arrived[arrival{incident, ended}]
	return at, ok
}
