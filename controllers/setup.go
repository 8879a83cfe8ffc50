package controllers

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/heartbeat"
	"github.com/tocsin-dev/tocsin/controllers/incident"
	"github.com/tocsin-dev/tocsin/controllers/integration"
	"github.com/tocsin-dev/tocsin/controllers/maintenance"
	"github.com/tocsin-dev/tocsin/controllers/release"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/controllers/sweep"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/internal/heartbeats"
	"github.com/tocsin-dev/tocsin/internal/recorder"
)

// Options are the settings of the controllers.
type Options struct {
	incident.Options

	// CheckMapping returns the error of an integration's mapping, with a line for each mistake, in words that do not change.
	CheckMapping func(*v1alpha1.WebhookIntegration) error

	// Capacity has what the namespaces may store. Its maker has it follow the manager's cache.
	Capacity *capacity.Counts

	// Forwarded is the source of the condition Forwarded. Default: Incidents are not forwarded.
	Forwarded integration.ConditionSource

	// Follower is told of Resolved Incidents. Default: nobody is.
	Follower sweep.Follower
}

// noFollower is a Follower that does nothing.
type noFollower struct{}

func (noFollower) Resolved(*v1alpha1.Incident) {}
func (noFollower) Swept()                      {}

// Replica is the part of the controllers that every replica runs, the leader or not.
type Replica struct{ options Options }

// NewReplica prepares the manager's cache, before the manager starts.
func NewReplica(mgr ctrl.Manager, options Options) (*Replica, error) {
	if len(options.Namespaces) == 0 {
		options.Namespaces = []string{""}
	}
	if options.Follower == nil {
		options.Follower = noFollower{}
	}
	if err := errors.Join(replica.Index(mgr), heartbeats.AddField(mgr.GetFieldIndexer())); err != nil {
		return nil, err
	}
	return &Replica{options}, replica.Follow(mgr, options.Memory)
}

// Lead adds the controllers to the manager of a leader's term, which has the replica's cache. All memory but that of the
// AlertEvents begins anew: that of an earlier term is worth nothing after another leader has folded.
func (r *Replica) Lead(mgr ctrl.Manager) error {
	live, err := replica.NewClient(mgr)
	if err != nil {
		return err
	}
	releaser := release.New(mgr.GetCache(), live, r.options.Memory, r.options.Clock)
	if err := releaser.Add(mgr); err != nil {
		return err
	}
	sweeper := sweep.New(sweep.Options{
		Live: live, Namespaces: r.options.Namespaces, Capacity: r.options.Capacity,
		Follower: r.options.Follower, Now: r.options.Health.APITime, ArchiveRequired: r.options.ArchiveRequired,
	})
	blocked, err := incident.Add(mgr, live, r.options.Options, r.options.Capacity, releaser, sweeper)
	if err != nil {
		return err
	}
	status := integration.Options{
		CheckMapping: r.options.CheckMapping, Capacity: r.options.Capacity, Folded: blocked.Condition,
		Forwarded: r.options.Forwarded, Now: r.options.Clock.Now, APITime: r.options.Health.APITime,
	}
	if r.options.ArchiveRequired {
		status.Archived = sweeper.Condition
	}
	if err := heartbeat.Add(mgr, live, r.options.Health); err != nil {
		return err
	}
	if err := maintenance.Add(mgr, live, r.options.Health.APITime); err != nil {
		return err
	}
	return integration.Add(mgr, live, status)
}

// RegisterMetrics registers the metrics of the controllers.
func RegisterMetrics(registry prometheus.Registerer) {
	heartbeat.RegisterMetrics(registry)
	incident.RegisterMetrics(registry)
	recorder.RegisterMetrics(registry)
	replica.RegisterMetrics(registry)
	sweep.RegisterMetrics(registry)
}
