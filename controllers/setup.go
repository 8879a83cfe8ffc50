package controllers

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/incident"
	"github.com/tocsin-dev/tocsin/controllers/integration"
	"github.com/tocsin-dev/tocsin/controllers/release"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/controllers/summary"
	"github.com/tocsin-dev/tocsin/controllers/sweep"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/internal/recorder"
)

// Options are the settings of the controllers.
type Options struct {
	Folds incident.Options // all but Forwarder and Features

	Features []Feature

	Mappings integration.Mappings

	// Capacity has what the namespaces may store. Its maker has it follow the manager's cache.
	Capacity *capacity.Counts

	// Forwarder forwards Incidents. Nil: they are not forwarded.
	Forwarder Forwarder
}

// Forwarder is a *forward.Forwarder outside of tests. It is the source of the condition Forwarded.
type Forwarder interface {
	incident.Forwarder
	sweep.Listener
	integration.ConditionSource
}

// Feature is a feature with objects of its own, which every replica follows. Its maker waits until it is Synced before a term.
type Feature interface {
	incident.Feature

	// Synced reports whether it knows the objects that existed at the start.
	Synced() bool

	// Lead adds the feature's own controllers to the manager of a term.
	Lead(mgr ctrl.Manager, live client.Client) error
}

// Replica is the part of the controllers that every replica runs, the leader or not.
type Replica struct{ options Options }

// NewReplica prepares the manager's cache, before the manager starts.
func NewReplica(mgr ctrl.Manager, options Options) (*Replica, error) {
	if len(options.Folds.Namespaces) == 0 {
		options.Folds.Namespaces = []string{""}
	}
	options.Folds.Forwarder = options.Forwarder
	if err := replica.Index(mgr); err != nil {
		return nil, err
	}
	return &Replica{options}, replica.Follow(mgr, options.Folds.Memory)
}

// Lead adds the controllers to the manager of a leader's term, which has the replica's cache. All memory but that of the
// AlertEvents begins anew: that of an earlier term is worth nothing after another leader has folded.
func (r *Replica) Lead(mgr ctrl.Manager) error {
	live, err := replica.NewClient(mgr)
	if err != nil {
		return err
	}
	folds := r.options.Folds
	releaser := release.New(mgr.GetCache(), live, folds.Memory, folds.Clock)
	if err := releaser.Add(mgr); err != nil {
		return err
	}
	folds.Features = nil
	for _, feature := range r.options.Features {
		folds.Features = append(folds.Features, feature)
	}
	sweeper := sweep.New(sweep.Options{
		Live: live, Namespaces: folds.Namespaces, Capacity: r.options.Capacity,
		Listener: r.options.Forwarder, Clock: folds.Health,
		ArchiveRequired: folds.ArchiveRequired,
	})
	blocked, err := incident.Add(mgr, live, folds, r.options.Capacity, releaser, sweeper)
	if err != nil {
		return err
	}
	status := integration.Options{
		Mappings: r.options.Mappings, Capacity: r.options.Capacity, Clock: folds.Clock, Health: folds.Health,
		Folded: blocked, Conditions: []integration.Condition{
			{Type: v1alpha1.ConditionForwarded, Source: r.options.Forwarder},
			{Type: v1alpha1.ConditionArchived, Source: sweeper},
		},
	}
	for _, feature := range r.options.Features {
		err = cmp.Or(err, feature.Lead(mgr, live))
	}
	return cmp.Or(err, summary.Add(mgr, live, folds.Health), integration.Add(mgr, live, status))
}

// RegisterMetrics registers the metrics of the controllers.
func RegisterMetrics(registry prometheus.Registerer) {
	incident.RegisterMetrics(registry)
	recorder.RegisterMetrics(registry)
	replica.RegisterMetrics(registry)
	sweep.RegisterMetrics(registry)
}
