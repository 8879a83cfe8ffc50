package controllers

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// What became of one alert, as the results of a plan and the metrics name it.
const (
	resultOpened       = "opened"
	resultUpdated      = "updated"
	resultResolved     = "resolved"
	resultReopened     = "reopened"
	resultAcknowledged = "acknowledged"
	resultLate         = "late"
	resultNoMatch      = "nomatch"
	resultReplayed     = "replayed"
	resultInvalid      = "invalid"
)

// policy is what the integration asks for its Incidents.
type policy struct {
	autoResolveAfter time.Duration // 0: never
	retention        time.Duration
}

// foldInput is everything that a fold depends on. Nothing in it is modified.
type foldInput struct {
	name     string                 // of the Incident
	incident *v1alpha1.Incident     // as read; nil when there is none
	events   []*v1alpha1.AlertEvent // those with an alert of this Incident that exist per the quorum list, in any order
	exists   func(uid string) bool  // whether an AlertEvent exists per the quorum list, which began after the Incident was read
	policy   policy
	now      time.Time
}

// alertResult is what became of one alert.
type alertResult struct {
	eventUID    types.UID
	integration string
	result      string    // one of the result constants
	received    time.Time // when the alert was accepted
}

// plan is what has to be done for one Incident.
type plan struct {
	create      *v1alpha1.IncidentSpec  // when not nil, there is no Incident: create it with this spec, then write the status
	status      v1alpha1.IncidentStatus // what to write
	write       bool                    // status differs from what is stored in more than a pruned ledger
	urgent      bool                    // a first write or a change of state: not to be delayed
	transitions []v1alpha1.Transition   // what happened, in order
	results     []alertResult           // one for each alert that was folded now, or found without an Incident or invalid
	settled     []types.UID             // events with no alert left for this Incident once the plan is carried out
	unmatched   bool                    // some alert found no Incident: confirm the absence by a quorum read first
	ledgerFull  bool                    // some event has to wait for room in the ledger
}

// fold decides what the events mean for the Incident.
func fold(foldInput) plan { return plan{} }
