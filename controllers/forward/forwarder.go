package forward

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
	"github.com/tocsin-dev/tocsin/controllers/forward/config"
	"github.com/tocsin-dev/tocsin/internal/maintenance"
)

// clock returns the time by the API server's clock. It is not ok while nothing may be posted.
type clock func() (now time.Time, ok bool)

// Forwarder forwards Incidents while its replica leads. There is one for each process.
type Forwarder struct {
	// PageURL is the address of the page, for links to Incidents; nil if there is none.
	PageURL *url.URL

	// Windows knows the MaintenanceWindows. Its maker has it follow the cache. Nil: there are none.
	Windows *maintenance.Windows

	// Dialer connects to Alertmanagers. Default: a *net.Dialer.
	Dialer alertmanager.Dialer

	path         string
	clock        Clock
	installation Installation
	log          logr.Logger

	file    atomic.Pointer[file]
	term    atomic.Pointer[term]                       // nil if this replica does not lead
	changed atomic.Pointer[func(types.NamespacedName)] // see Watch
}

// file is what was read of the configuration file. It never changes.
type file struct {
	data   []byte         // what was read last
	err    error          // why that is invalid
	config *config.Config // the last valid content; empty if there was none
}

// Clock is a *replica.IngestHealth outside of tests.
type Clock interface {
	// Now returns the time by the API server's clock, by which expiries are computed: a leader's own clock may be wrong. It is not
	// ok while that time is unknown.
	Now() (now time.Time, ok bool)
}

// Installation is this Tocsin.
type Installation interface {
	// ID returns its identity, without spaces: several may share an Alertmanager, and none may end the silences of another.
	ID(ctx context.Context) (string, error)
}

// Lease is that of the leader. It is a *leader.Campaign outside of tests.
type Lease interface {
	// Holds reports whether the lease, as last seen, has not run out: nothing is posted after that.
	Holds() bool
}

// New returns a Forwarder with the configuration in a file.
func New(path string, clock Clock, installation Installation, log logr.Logger) *Forwarder {
	f := &Forwarder{path: path, clock: clock, installation: installation, log: log}
	f.Dialer = &net.Dialer{Timeout: alertmanager.RequestTimeout}
	f.file.Store(&file{config: config.Empty()})
	return f
}

// Start implements manager.Runnable: it reads the file now and whenever it changes. Each replica keeps its last valid
// content, so that a failover does not end the forwarding while the file is invalid.
func (f *Forwarder) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(context.Context) { f.load() }, reloadInterval)
	return nil
}

// load reads the file. An invalid file does not end the process: it would neither store nor fold alerts any more.
func (f *Forwarder) load() {
	last := f.file.Load()
	data, err := os.ReadFile(f.path)
	isNew := !bytes.Equal(data, last.data)
	if err == nil && !isNew && last.err == nil && !last.config.IsEmpty() {
		return
	}
	var read *config.Config
	if err == nil {
		read, err = config.Parse(data, filepath.Dir(f.path), f.PageURL)
	}
	if err != nil {
		if isNew || last.err == nil {
			f.log.Error(err, "Alertmanager configuration is invalid", "file", f.path, "lastValidInUse", !last.config.IsEmpty())
		}
		f.file.Store(&file{data: data, err: err, config: last.config})
		configValid.WithLabelValues().Set(0)
		return
	}
	f.log.Info("Loaded Alertmanager configuration", "file", f.path, "alertmanagers", len(read.Alertmanagers))
	f.file.Store(&file{data: data, config: read})
	configValid.WithLabelValues().Set(1)
}

// current returns the configuration in use.
func (f *Forwarder) current() *config.Config { return f.file.Load().config }

// apiTime returns the time by the API server's clock, and that of the process while the former is not known.
func (f *Forwarder) apiTime() time.Time {
	if now, ok := f.clock.Now(); ok {
		return now
	}
	return time.Now()
}

// Observe implements incident.Forwarder and sweep.Listener.
func (f *Forwarder) Observe(incident *v1alpha1.Incident) {
	if t := f.term.Load(); t != nil {
		t.observe(incident)
	}
}

// Watch implements incident.Forwarder.
func (f *Forwarder) Watch(ctx context.Context, changed func(incident types.NamespacedName)) {
	f.changed.Store(&changed)
	<-ctx.Done()
	f.changed.CompareAndSwap(&changed, nil)
}

// enqueue has an Incident folded: what is known about its forwarding or its silences has changed. It reports false while nothing
// folds.
func (f *Forwarder) enqueue(incident types.NamespacedName) bool {
	changed := f.changed.Load()
	if changed != nil {
		(*changed)(incident)
	}
	return changed != nil
}

// Lead adds the forwarding to the manager of a leader's term, with which it ends.
func (f *Forwarder) Lead(mgr ctrl.Manager, lease Lease) error {
	t := newTerm(f, lease, mgr.GetAPIReader(), net.DefaultResolver)
	if err := t.watch(mgr.GetCache()); err != nil {
		return err
	}
	if err := mgr.Add(t); err != nil {
		return fmt.Errorf("adding the forwarding of Incidents: %w", err)
	}
	f.term.Store(t)
	return nil
}

// Check reads a configuration file as the manager would, and returns what it has, or its errors, one in each line.
func Check(path string) (report string, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	checked, err := config.Parse(data, filepath.Dir(path), nil)
	if err != nil {
		return "", err
	}
	names := make([]string, 0, len(checked.Alertmanagers))
	for _, target := range checked.Alertmanagers {
		names = append(names, target.Name())
	}
	return path + " is valid. Alertmanagers: " + strings.Join(names, ", "), nil
}
