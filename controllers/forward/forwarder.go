package forward

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Forwarder forwards Incidents while its replica leads. There is one for each process.
type Forwarder struct {
	path  string
	clock clock
	log   logr.Logger

	installation func(context.Context) (string, error) // see store
	mu           sync.Mutex
	config       *Config // the last valid content of the file; nil if there was none
	loaded       bool    // the file was read, successfully or not
	invalid      bool    // the file has other content that is invalid
	data         []byte  // what was read last

	term atomic.Pointer[term] // the newest term of this replica

	silenceChanged atomic.Pointer[func(types.NamespacedName)] // see WatchSilences
}

// New returns a Forwarder with the configuration in a file. The clock returns the time by the API server's clock, by which
// leases are computed: a leader's own clock may be wrong. It is not ok while that time is unknown. installation returns what
// tells this Tocsin from all others: they may share an Alertmanager, and none may end the silences of another.
func New(path string, clock clock, installation func(context.Context) (string, error), log logr.Logger) *Forwarder {
	return &Forwarder{path: path, clock: clock, installation: installation, log: log}
}

// Start implements manager.Runnable: it reads the file now and whenever it changes. Each replica keeps its last valid
// content, so that a failover does not end the forwarding while the file is invalid.
func (f *Forwarder) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		f.load()
		sleep(ctx, reloadInterval, nil)
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (f *Forwarder) NeedLeaderElection() bool { return false }

// load reads the file. An invalid file does not end the process: it would neither store nor fold alerts any more.
func (f *Forwarder) load() {
	data, err := os.ReadFile(f.path)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && f.loaded && !f.invalid && bytes.Equal(data, f.data) {
		return
	}
	var config *Config
	if err == nil {
		config, err = parseConfig(data, filepath.Dir(f.path))
	}
	if err != nil {
		if !f.invalid || !bytes.Equal(data, f.data) {
			f.log.Error(err, "Alertmanager configuration is invalid", "file", f.path, "lastValidInUse", f.config != nil)
		}
		f.loaded, f.invalid, f.data = true, true, data
		configValid.WithLabelValues().Set(0)
		return
	}
	f.log.Info("Loaded Alertmanager configuration", "file", f.path, "alertmanagers", len(config.Alertmanagers))
	f.config, f.loaded, f.invalid, f.data = config, true, false, data
	configValid.WithLabelValues().Set(1)
	if t := f.term.Load(); t != nil {
		t.signal.give()
	}
}

// current returns the configuration in use, nil if there is none yet.
func (f *Forwarder) current() *Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config
}

// Resolved implements controllers.Follower.
func (f *Forwarder) Resolved(incident *v1alpha1.Incident) {
	if t := f.term.Load(); t != nil {
		t.resolved(incident)
	}
}

// Swept implements controllers.Follower.
func (f *Forwarder) Swept() {
	if t := f.term.Load(); t != nil {
		t.swept.Store(true)
	}
}

// Lead adds the forwarding to the manager of a leader's term. It ends with the term, so a leader that has lost the lease
// posts nothing.
func (f *Forwarder) Lead(mgr ctrl.Manager) error {
	t := newTerm(f, mgr.GetCache(), mgr.GetAPIReader(), net.DefaultResolver)
	if err := t.watch(mgr.GetCache()); err != nil {
		return fmt.Errorf("watching Incidents: %w", err)
	}
	if err := mgr.Add(t); err != nil {
		return fmt.Errorf("adding the forwarding of Incidents: %w", err)
	}
	f.term.Store(t)
	return nil
}
