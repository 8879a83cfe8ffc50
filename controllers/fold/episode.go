package fold

import (
	"slices"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// EndedEpisode describes an episode that has ended. It is complete: an archive keeps it after the Incident is deleted.
type EndedEpisode struct {
	Number           int64                 `json:"episode"`
	StartTime        v1alpha1.Timestamp    `json:"startTime"`  // earliest startTime of its alerts
	OpenedTime       v1alpha1.Timestamp    `json:"openedTime"` // when the alert that opened it was received
	AcknowledgedTime v1alpha1.Timestamp    `json:"acknowledgedTime,omitzero"`
	AcknowledgedBy   string                `json:"acknowledgedBy,omitempty"` // a user's name, or "an alert"
	Assignee         string                `json:"assignee,omitempty"`       // who worked on it at its end
	ResolvedTime     v1alpha1.Timestamp    `json:"resolvedTime"`
	ResolvedBy       string                `json:"resolvedBy,omitempty"` // a user's name; empty if Resolution is not ResolvedByUser
	Resolution       string                `json:"resolution,omitempty"` // the reason of the condition Resolved
	LastAlertTime    v1alpha1.Timestamp    `json:"lastAlertTime,omitzero"`
	AlertCount       int64                 `json:"alertCount"`
	InitialSeverity  v1alpha1.Severity     `json:"initialSeverity,omitempty"`
	HighestSeverity  v1alpha1.Severity     `json:"highestSeverity,omitempty"`
	Severity         v1alpha1.Severity     `json:"severity,omitempty"` // the last one
	Alert            v1alpha1.AlertContent `json:"alert,omitzero"`
	Timeline         []v1alpha1.Transition `json:"timeline,omitempty"` // of this episode: the newest 20 transitions at most

	// Digest is that of the ledger when the episode ended, or after the newest alert that was counted later. Two
	// descriptions of an episode with the same digest describe the same alerts.
	Digest string `json:"digest,omitempty"`

	// ContentOmitted says that Alert and Timeline were too large to be kept until the episode was archived.
	ContentOmitted bool `json:"contentOmitted,omitempty"`

	// Omitted are later episodes that are not described anywhere.
	Omitted *OmittedEpisodes `json:"omitted,omitempty"`
}

// OmittedEpisodes counts episodes that ended while too many others of their Incident waited to be archived.
type OmittedEpisodes struct {
	Episodes         int64              `json:"episodes"`
	AlertCount       int64              `json:"alertCount"`
	LastResolvedTime v1alpha1.Timestamp `json:"lastResolvedTime"`
}

// DescribeEpisode describes the last episode of a Resolved Incident. ok is false for any other Incident.
func DescribeEpisode(status *v1alpha1.IncidentStatus) (e EndedEpisode, ok bool) {
	if status.State != v1alpha1.IncidentResolved || status.Episode == nil || !isSet(status.ResolvedTime) {
		return e, false
	}
	e = EndedEpisode{
		Number:        status.Episode.Number,
		StartTime:     status.Episode.StartTime,
		OpenedTime:    valueOf(status.OpenedTime, &status.Episode.StartTime),
		ResolvedTime:  *status.ResolvedTime,
		LastAlertTime: valueOf(status.LastAlertTime),
		AlertCount:    status.Episode.AlertCount,
		Severity:      status.Alert.Severity,
		Alert:         status.Alert,
		Timeline:      lastEpisode(status.Timeline),
		Digest:        status.Ledger.Digest,
	}
	e.Alert.Origins = "" // by a mapping that will have changed, and of no use in an archive
	e.describeSeverities()
	if acknowledgement := status.Acknowledgement; acknowledgement != nil {
		e.AcknowledgedTime, e.AcknowledgedBy = acknowledgement.Time, AcknowledgedBy(status)
	}
	e.Assignee = AssigneeOf(status)
	if resolution := status.Resolution; resolution != nil {
		e.Resolution, e.ResolvedBy = resolution.Reason, resolution.By
	}
	return e, true
}

// lastEpisode returns the transitions since the last episode began, or all if the timeline begins later.
func lastEpisode(timeline []v1alpha1.Transition) []v1alpha1.Transition {
	for i := range slices.Backward(timeline) {
		if kind := timeline[i].Type; kind == v1alpha1.TransitionOpened || kind == v1alpha1.TransitionReopened {
			return timeline[i:]
		}
	}
	return timeline
}

// describeSeverities finds the first and the highest severity as far as the timeline tells them.
func (e *EndedEpisode) describeSeverities() {
	e.InitialSeverity, e.HighestSeverity = e.Severity, e.Severity
	periods := SeverityPeriods(e.Timeline)
	if len(periods) > 0 {
		e.InitialSeverity = periods[0].Severity
	}
	for _, severity := range v1alpha1.Severities() { // the highest first
		isTold := func(period SeverityPeriod) bool { return period.Severity == severity }
		if severity == e.Severity || slices.ContainsFunc(periods, isTold) {
			e.HighestSeverity = severity
			return
		}
	}
}
