// Package recorder limits the Kubernetes Events that a process records. Each is a write, and tenants decide how many objects
// there are to report about: without a limit, thousands of unreadable AlertEvents would be reported one by one, by each new
// leader again.
package recorder

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
)

const (
	// burst is how many Kubernetes Events a namespace may have at once, and interval how often it may have another one.
	burst    = 50
	interval = 2 * time.Second

	// maxNamespaces is how many namespaces have a limiter. One that was evicted has its burst again.
	maxNamespaces = 1000
)

var dropped = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "tocsin_kubernetes_events_dropped_total",
	Help: "Kubernetes Events that were not recorded: their namespace had more than 50 at once and more than one in " +
		"two seconds. Conditions and timelines tell the same.",
})

// RegisterMetrics registers the metrics of the recorders.
func RegisterMetrics(registry prometheus.Registerer) { registry.MustRegister(dropped) }

// manager is a manager whose recorders share the limits of the namespaces.
type manager struct {
	ctrl.Manager
	limiters *lru.Cache // of *rate.Limiter, by namespace
	now      func() time.Time
}

// Limit returns a manager whose recorders drop what exceeds the limit of a namespace.
func Limit(mgr ctrl.Manager) ctrl.Manager { return &manager{mgr, lru.New(maxNamespaces), time.Now} }

func (m *manager) GetEventRecorder(name string) recorder.EventRecorder {
	return &limited{m.Manager.GetEventRecorder(name), m}
}

type limited struct {
	recorder.EventRecorder
	manager *manager
}

func (l *limited) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	if !l.manager.allows(regarding) {
		dropped.Inc()
		return
	}
	l.EventRecorder.Eventf(regarding, related, eventtype, reason, action, note, args...)
}

func (m *manager) allows(regarding runtime.Object) bool {
	object, err := meta.Accessor(regarding)
	if err != nil {
		return true // there are few such objects, none of a tenant
	}
	limiter, ok := m.limiters.Get(object.GetNamespace())
	if !ok { // of two at the same moment, the later one counts
		limiter = rate.NewLimiter(rate.Every(interval), burst)
		m.limiters.Add(object.GetNamespace(), limiter)
	}
	return limiter.(*rate.Limiter).AllowN(m.now(), 1)
}
