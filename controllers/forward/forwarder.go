package forward

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/maintenance"
)

// Forwarder forwards Incidents while its replica leads. There is one for each process.
type Forwarder struct {
	// PageURL is the address of the page, for links to Incidents; nil if there is none.
	PageURL *url.URL

	// Windows knows the MaintenanceWindows. Its maker has it follow the cache. Nil: there are none.
	Windows *maintenance.Windows

	// Dial connects to Alertmanagers. Default: that of net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	path         string
	clock        clock
	installation func(context.Context) (string, error)
	log          logr.Logger

	file    atomic.Pointer[file]
	term    atomic.Pointer[term]                       // nil if this replica does not lead
	changed atomic.Pointer[func(types.NamespacedName)] // see Watch
}

// file is what was read of the configuration file. It never changes.
type file struct {
	data   []byte  // what was read last
	err    error   // why that is invalid
	config *Config // the last valid content; without Alertmanagers if there was none
}

// New returns a Forwarder with the configuration in a file. The clock returns the time by the API server's clock, by which
// expiries are computed: a leader's own clock may be wrong. It is not ok while that time is unknown. installation returns what
// tells this Tocsin from all others, without spaces: they may share an Alertmanager, and none may end the silences of another.
func New(path string, clock clock, installation func(context.Context) (string, error), log logr.Logger) *Forwarder {
	f := &Forwarder{path: path, clock: clock, installation: installation, log: log}
	f.Dial = (&net.Dialer{Timeout: requestTimeout}).DialContext
	f.file.Store(&file{config: &Config{Expiry: &metav1.Duration{Duration: defaultExpiry}}})
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
	if err == nil && !isNew && last.err == nil && last.config.isValid() {
		return
	}
	var config *Config
	if err == nil {
		config, err = parseConfig(data, filepath.Dir(f.path))
	}
	if err != nil {
		if isNew || last.err == nil {
			f.log.Error(err, "Alertmanager configuration is invalid", "file", f.path, "lastValidInUse", last.config.isValid())
		}
		f.file.Store(&file{data: data, err: err, config: last.config})
		configValid.WithLabelValues().Set(0)
		return
	}
	config.pageURL = f.PageURL
	f.log.Info("Loaded Alertmanager configuration", "file", f.path, "alertmanagers", len(config.Alertmanagers))
	f.file.Store(&file{data: data, config: config})
	configValid.WithLabelValues().Set(1)
}

// current returns the configuration in use.
func (f *Forwarder) current() *Config { return f.file.Load().config }

// Resolved implements sweep.Follower.
func (f *Forwarder) Resolved(incident *v1alpha1.Incident) {
	if t := f.term.Load(); t != nil {
		t.resolved(incident)
	}
}

// Swept implements sweep.Follower.
func (f *Forwarder) Swept() {
	if t := f.term.Load(); t != nil {
		t.swept.Store(true)
	}
}

// Lead adds the forwarding to the manager of a leader's term, with which it ends. leads reports whether the lease, as last seen,
// has not run out: nothing is posted after that.
func (f *Forwarder) Lead(mgr ctrl.Manager, leads func() bool) error {
	t := newTerm(f, leads, mgr.GetAPIReader(), net.DefaultResolver)
	if err := t.watch(mgr.GetCache()); err != nil {
		return err
	}
	if err := mgr.Add(t); err != nil {
		return fmt.Errorf("adding the forwarding of Incidents: %w", err)
	}
	f.term.Store(t)
	return nil
}
