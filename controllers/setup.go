package controllers

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/incident"
	"github.com/tocsin-dev/tocsin/controllers/integration"
	"github.com/tocsin-dev/tocsin/controllers/release"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/controllers/sweep"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/leader"
)

// Options are the settings of the controllers.
type Options struct {
	// Namespaces are the namespaces that the manager's cache watches. Empty: all.
	Namespaces []string

	// CheckMapping returns the error of an integration's mapping, in a line that does not change.
	CheckMapping func(*v1alpha1.WebhookIntegration) error

	// PresetLateFiringWindow returns the window of a preset, for integrations without spec.lateFiringWindow.
	PresetLateFiringWindow func(preset string) (window time.Duration, ok bool)

	// Health is the process's. Its maker adds it to the manager.
	Health *replica.IngestHealth

	// Memory is the process's memory of AlertEvents. Its maker calls Listed when they are listed.
	Memory *replica.Memory

	// IngestBacklog returns how many requests wait in this process to be stored; the more, the fewer folds write at a
	// time.
	IngestBacklog func() int

	// RestartWatch has the manager's cache watch AlertEvents again, from where it was, or list them anew.
	RestartWatch func(listAnew bool)

	// MaxIncidents is how many Incidents there may be that are not Resolved, and how many Resolved ones are kept.
	MaxIncidents int

	// NamespaceShare is the part of MaxIncidents that one namespace may use.
	NamespaceShare float64

	// Silences tells which silences in Alertmanager cover Incidents. Nil: Incidents are not forwarded.
	Silences incident.Silences

	// Unavailable returns the reason of the condition Ready for which posts to a namespace get 503, empty when they do not.
	Unavailable func(namespace string) string

	// Forwarding is the forwarding of Incidents to Alertmanager. Default: Incidents are not forwarded.
	Forwarding integration.ConditionSource

	// ArchiveRequired says that Incidents are kept until their archiver notes that the archive has them.
	ArchiveRequired bool

	// Follower is told of Resolved Incidents. Default: nobody is.
	Follower sweep.Follower

	// Metrics is where the metrics of the objects in the store are registered while the manager runs. Default: nowhere.
	Metrics prometheus.Registerer

	// TracerProvider makes the spans of folds. Nil: there are none.
	TracerProvider trace.TracerProvider

	// Clock tells the time.
	Clock replica.Clock
}

func (o Options) incidentLimit() fair.Limit {
	return fair.Limit{All: int64(o.MaxIncidents), Share: o.NamespaceShare}
}

// noFollower is a Follower that does nothing.
type noFollower struct{}

func (noFollower) Resolved(*v1alpha1.Incident) {}
func (noFollower) Swept()                      {}

// Replica is the part of the controllers that every replica runs, the leader or not.
type Replica struct {
	options Options
	counts  *replica.Counts
}

// NewReplica prepares the manager's cache and the metrics of the objects in it, before the manager starts.
func NewReplica(mgr ctrl.Manager, options Options) (*Replica, error) {
	if len(options.Namespaces) == 0 {
		options.Namespaces = []string{""}
	}
	if options.Follower == nil {
		options.Follower = noFollower{}
	}
	if err := replica.Index(mgr); err != nil {
		return nil, err
	}
	counts, err := replica.NewCounts(mgr, options.Clock, options.incidentLimit(), options.Metrics)
	if err != nil {
		return nil, err
	}
	return &Replica{options, counts}, options.Memory.Follow(mgr)
}

// Lead adds the controllers to the manager of a leader's term, which has the replica's cache. All memory but that of the
// AlertEvents begins anew: that of an earlier term is worth nothing after another leader has folded.
func (r *Replica) Lead(mgr ctrl.Manager) error {
	live, err := replica.NewClient(mgr)
	if err != nil {
		return err
	}
	if live, err = leader.TrackCalls(mgr, live); err != nil {
		return err
	}
	releaser := release.New(mgr.GetCache(), live, r.options.Memory, r.options.Clock)
	if err := releaser.Add(mgr); err != nil {
		return err
	}
	sweeper := sweep.New(sweep.Options{
		Live: live, Namespaces: r.options.Namespaces, Limit: r.options.incidentLimit(), Counts: r.counts,
		Follower: r.options.Follower, Clock: r.options.Clock, ArchiveRequired: r.options.ArchiveRequired,
	})
	blocked, err := incident.Add(mgr, live, incident.Options{
		Namespaces: r.options.Namespaces, Memory: r.options.Memory, Releaser: releaser, Sweeper: sweeper, Counts: r.counts,
		Health: r.options.Health, IngestBacklog: r.options.IngestBacklog, RestartWatch: r.options.RestartWatch,
		PresetLateFiringWindow: r.options.PresetLateFiringWindow, Silences: r.options.Silences,
		ArchiveRequired: r.options.ArchiveRequired, TracerProvider: r.options.TracerProvider, Clock: r.options.Clock,
	})
	if err != nil {
		return err
	}
	status := integration.Options{
		CheckMapping: r.options.CheckMapping, Unavailable: r.options.Unavailable, Folded: blocked, Changed: blocked.Changed(),
		Forwarded: r.options.Forwarding, Now: r.options.Clock.Now,
	}
	if r.options.ArchiveRequired {
		status.Archived = sweeper
	}
	return integration.Add(mgr, live, status)
}

// RegisterMetrics registers the metrics of the controllers, all but those of replica.StoreMetrics.
func RegisterMetrics(registry prometheus.Registerer) {
	incident.RegisterMetrics(registry)
	replica.RegisterMetrics(registry)
	sweep.RegisterMetrics(registry)
}
