package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of an Incident's lists.
const (
	MaxTimeline           = 20  // transitions in a timeline
	MaxLedger             = 128 // AlertEvents in a ledger; folding into an Incident pauses while its ledger is full
	MaxUnarchivedEpisodes = 16  // ended episodes that an Incident keeps until they are archived
	MaxOpenedTimes        = 20  // openings of earlier episodes: spec.flapping of the integration allows no more
)

// IncidentState is the state of an Incident.
// +kubebuilder:validation:Enum=Open;Resolved
type IncidentState string

// AlertLabelPrefix begins the keys of an Incident's labels that spec.objectLabels of its integration selects.
const AlertLabelPrefix = "alert.tocsin.dev/"

// Paths by which Incidents can be selected.
const (
	StateField        = "status.state"
	ArchiveStateField = "status.archive.state"
	IntegrationField  = "spec.integrationName" // also of Heartbeats
)

// The states of an Incident.
const (
	IncidentOpen     IncidentState = "Open"
	IncidentResolved IncidentState = "Resolved"
)

// IncidentSpec identifies the alerts that belong to the Incident.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of an Incident is immutable"
type IncidentSpec struct {
	// integrationName is the name of the WebhookIntegration that accepted the alerts.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +required
	IntegrationName string `json:"integrationName,omitempty"`

	// dedupKey is the key that all alerts of the incident share.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	DedupKey string `json:"dedupKey,omitempty"`
}

// Episode is one continuous period in which the Incident is open.
type Episode struct {
	// number is 1 for the first episode of the Incident.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +required
	Number int64 `json:"number,omitempty"`

	// startTime is the earliest startTime of the episode's alerts, or the time at which an alert without startTime was
	// received.
	// +required
	StartTime Timestamp `json:"startTime,omitempty,omitzero"`

	// lastStartTime is the latest startTime of the episode's firing alerts. A resolve about an earlier time does not end the
	// episode. Absent if none has a startTime.
	// +optional
	LastStartTime *Timestamp `json:"lastStartTime,omitempty"`

	// alertCount is the number of alerts folded since the episode began. Of the reports of people, only firing ones count.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +required
	AlertCount int64 `json:"alertCount"`

	// forwardTime is the time before which nothing of the episode is forwarded, by the forwardAfter of the integration. An episode
	// that is resolved before is not forwarded at all. Absent if nothing keeps it.
	// +optional
	ForwardTime *Timestamp `json:"forwardTime,omitempty,omitzero"`

	// expiredAcknowledgements is how many acknowledgements of the episode have expired. Forwarded alerts have it as a label, so
	// that Alertmanager notifies again.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +optional
	ExpiredAcknowledgements int64 `json:"expiredAcknowledgements,omitempty"`

	// title is the beginning of the title with which the episode began. It does not change while the Incident is open. Absent in
	// episodes that an earlier version began.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Title string `json:"title,omitempty"`
}

// Flapping is what is known of an Incident that has opened more than once.
type Flapping struct {
	// openedTimes are the openedTimes of the newest earlier episodes, oldest first, in whole seconds: as many as the openings of
	// spec.flapping of the integration.
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	// +optional
	OpenedTimes []Timestamp `json:"openedTimes,omitempty"` //nolint:kubeapilinter // a Timestamp is a string in JSON

	// endTime is the time at which the condition Flapping becomes False unless the Incident opens again. Absent if it is not True.
	// +optional
	EndTime *Timestamp `json:"endTime,omitempty,omitzero"`

	// keptFiring is what Alertmanager is told since an episode has ended while the Incident flaps, by the keepFiringFor of the
	// integration. Absent if each end is forwarded.
	// +optional
	KeptFiring *KeptFiring `json:"keptFiring,omitempty,omitzero"`
}

// KeptFiring is a time in which an Incident is forwarded as one that fires, whether it is open or not.
type KeptFiring struct {
	// severity is the one with which the Incident is forwarded: the highest since the episode that ended then.
	// +required
	Severity Severity `json:"severity,omitempty"`

	// startTime is the time of the first end that was not forwarded.
	// +required
	StartTime Timestamp `json:"startTime,omitempty,omitzero"`

	// endTime is the time before which the end of the last episode is not forwarded. If the Incident opens before, the end is not
	// forwarded at all.
	// +required
	EndTime Timestamp `json:"endTime,omitempty,omitzero"`
}

// UnarchivedEpisode is an ended episode of an Incident that is open again. It may not be in the archive yet.
type UnarchivedEpisode struct {
	// number is the number of the episode.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +required
	Number int64 `json:"number,omitempty"`

	// resolvedTime is the time at which the alert that ended the episode was received.
	// +required
	ResolvedTime Timestamp `json:"resolvedTime,omitempty,omitzero"`

	// digest is the digest of the ledger when the episode, or the newest one that omittedEpisodes counts, was replaced by
	// the next one.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Digest string `json:"digest,omitempty"`

	// omittedEpisodes is the number of later episodes of which nothing else is kept, because too many were waiting.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +optional
	OmittedEpisodes int64 `json:"omittedEpisodes,omitempty"`

	// omittedAlerts is the number of alerts of these episodes.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +optional
	OmittedAlerts int64 `json:"omittedAlerts,omitempty"`

	// omittedResolvedTime is the resolvedTime of the newest of these episodes.
	// +optional
	OmittedResolvedTime *Timestamp `json:"omittedResolvedTime,omitempty,omitzero"`

	// packed is the record of the episode: base64 of gzip-compressed JSON.
	// +kubebuilder:validation:MaxLength=16384
	// +optional
	Packed string `json:"packed,omitempty"`
}

// ArchiveState says whether the archive has all ended episodes of an Incident.
// +kubebuilder:validation:Enum=Waiting;Complete
type ArchiveState string

// States of the archive.
const (
	ArchiveWaiting  ArchiveState = "Waiting"
	ArchiveComplete ArchiveState = "Complete"
)

// ArchiveStatus says which ended episodes of an Incident are in the archive.
type ArchiveStatus struct {
	// state is Waiting while an ended episode is not in the archive. The operator then does not delete the Incident.
	// +required
	State ArchiveState `json:"state,omitempty"`

	// episode is the number of the newest episode that is in the archive, or that a record there counts. This is true of all
	// before it, too.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +optional
	Episode int64 `json:"episode,omitempty"`

	// digest is that of the ledger in the record of this episode. An alert that is counted later changes it.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Digest string `json:"digest,omitempty"`
}

// TransitionType is the kind of an entry of the timeline.
// +kubebuilder:validation:Enum=Opened;Reopened;Resolved;Acknowledged;Unacknowledged;Assigned;Unassigned;Noted;Silenced;Unsilenced;SeverityChanged;ContentReplaced;ContentRejected;Forwarding
type TransitionType string

// The kinds of transitions.
const (
	TransitionOpened          TransitionType = "Opened"
	TransitionReopened        TransitionType = "Reopened"
	TransitionResolved        TransitionType = "Resolved"
	TransitionAcknowledged    TransitionType = "Acknowledged"
	TransitionUnacknowledged  TransitionType = "Unacknowledged"
	TransitionAssigned        TransitionType = "Assigned"
	TransitionUnassigned      TransitionType = "Unassigned"
	TransitionNoted           TransitionType = "Noted"
	TransitionSilenced        TransitionType = "Silenced"
	TransitionUnsilenced      TransitionType = "Unsilenced"
	TransitionSeverityChanged TransitionType = "SeverityChanged"
	TransitionContentReplaced TransitionType = "ContentReplaced"
	TransitionContentRejected TransitionType = "ContentRejected"
	TransitionForwarding      TransitionType = "Forwarding"
)

// Transition is one entry of the timeline.
type Transition struct {
	// type is the kind of the transition.
	// +required
	Type TransitionType `json:"type,omitempty"`

	// time is the time at which the alert that caused the transition was received.
	// +required
	Time Timestamp `json:"time,omitempty,omitzero"`

	// message is a human-readable description, without the comment. Its wording may change.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Message string `json:"message,omitempty"`

	// severity is the severity of the Incident from then on. Only entries of the types Opened, Reopened and SeverityChanged
	// have it.
	// +optional
	Severity Severity `json:"severity,omitempty"`

	// by is the name of the user who caused the transition. It is not verified. Absent if an alert of a sender or the
	// operator did.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	By string `json:"by,omitempty"`

	// comment is the comment of the alert that caused the transition, as one short line.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Comment string `json:"comment,omitempty"`
}

// Acknowledgement describes who acknowledged the current episode, and at which severity.
type Acknowledgement struct {
	// time is the time at which the alert that acknowledged the episode was received.
	// +required
	Time Timestamp `json:"time,omitempty,omitzero"`

	// by is the name of the user who acknowledged the episode. It is not verified. Absent if an alert of a sender did.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	By string `json:"by,omitempty"`

	// comment is the comment of that alert, as one line.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Comment string `json:"comment,omitempty"`

	// severity is the highest severity at which the episode was acknowledged. The acknowledgement does not cover a more
	// severe Incident.
	// +optional
	Severity Severity `json:"severity,omitempty"`

	// expirationTime is the time at which the acknowledgement ends unless it is repeated. Absent if it does not end by itself.
	// +optional
	ExpirationTime *Timestamp `json:"expirationTime,omitempty,omitzero"`
}

// Assignee is who works on the current episode.
type Assignee struct {
	// name is the name of the person, as one line. It is not verified.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +required
	Name string `json:"name,omitempty"`

	// time is the time at which the report that assigned the episode was received.
	// +required
	Time Timestamp `json:"time,omitempty,omitzero"`

	// by is the name of the user who assigned the episode. It is not verified. Absent if the report names none.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	By string `json:"by,omitempty"`
}

// Resolution describes why and by whom the last episode was resolved.
type Resolution struct {
	// reason is the reason of the condition Resolved: ResolvedByAlert, ResolvedByUser, AutoResolved or Expired.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +required
	Reason string `json:"reason,omitempty"`

	// by is the name of the user who resolved the episode. It is not verified. Absent if no user did.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	By string `json:"by,omitempty"`
}

// Silence is a silence of the Incident in Alertmanager, or a user's request for one.
type Silence struct {
	// endTime is the end of the silence.
	// +required
	EndTime Timestamp `json:"endTime,omitempty,omitzero"`

	// by is the name of the user who requested or created the silence. It is not verified.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	By string `json:"by,omitempty"`

	// comment is the user's reason for the silence.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Comment string `json:"comment,omitempty"`

	// id is the ID of the silence in Alertmanager. Absent in a request.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ID string `json:"id,omitempty"`

	// link is the address of the silence in Alertmanager. Absent in a request, and if the operator's configuration has no
	// external_url of the Alertmanager.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Link string `json:"link,omitempty"`
}

// ForwardingReason says whether people are told of an open Incident by an Alertmanager, and if not, why.
// +kubebuilder:validation:Enum=Posted;Silenced;Muted;Held;Filtered;FromAlertmanager;Off;Failing
type ForwardingReason string

// The reasons of a forwarding. People are told of Incidents with the reason Posted only.
const (
	// ForwardingPosted: an Alertmanager has accepted the Incident.
	ForwardingPosted ForwardingReason = "Posted"

	// ForwardingSilenced: an Alertmanager has accepted it, and a silence covers it.
	ForwardingSilenced ForwardingReason = "Silenced"

	// ForwardingMuted: a maintenance window keeps it from being posted.
	ForwardingMuted ForwardingReason = "Muted"

	// ForwardingHeld: it has not been open for as long as its integration's forwardAfter asks.
	ForwardingHeld ForwardingReason = "Held"

	// ForwardingFiltered: the operator's configuration has no Alertmanager for its severity.
	ForwardingFiltered ForwardingReason = "Filtered"

	// ForwardingFromAlertmanager: its alerts come from an Alertmanager, which tells people itself.
	ForwardingFromAlertmanager ForwardingReason = "FromAlertmanager"

	// ForwardingOff: nothing of the integration is posted, by its spec or by the operator's configuration.
	ForwardingOff ForwardingReason = "Off"

	// ForwardingFailing: no Alertmanager accepts it.
	ForwardingFailing ForwardingReason = "Failing"
)

// Forwarding says whether people are told of an Incident by an Alertmanager.
type Forwarding struct {
	// reason is Posted if an Alertmanager has accepted the Incident, and otherwise says why people are not told.
	// +required
	Reason ForwardingReason `json:"reason,omitempty"`

	// time is since when the reason applies, as far as the operator knows.
	// +required
	Time Timestamp `json:"time,omitempty,omitzero"`

	// severity is the severity with which an Alertmanager has last accepted the Incident. Absent if none has.
	// +optional
	Severity Severity `json:"severity,omitempty"`

	// alertmanagers is how many of the configured Alertmanagers had accepted the Incident when this was written. Absent if none
	// had.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +optional
	Alertmanagers int64 `json:"alertmanagers,omitempty"`

	// message says why people are not told. Its wording may change.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Message string `json:"message,omitempty"`
}

// IgnoredReason says why an alert came too late to change anything but the count.
// +kubebuilder:validation:Enum=Late;Stale;Overtaken
type IgnoredReason string

// The reasons for which alerts are ignored.
const (
	// IgnoredLate: the firing repeats an episode that has ended.
	IgnoredLate IgnoredReason = "Late"

	// IgnoredStale: the resolve is about an earlier firing than the newest.
	IgnoredStale IgnoredReason = "Stale"

	// IgnoredOvertaken: an alert that was accepted later had been folded before.
	IgnoredOvertaken IgnoredReason = "Overtaken"
)

// IgnoredAlert is an alert that came too late to change anything but the count.
type IgnoredAlert struct {
	// reason says why it was ignored.
	// +required
	Reason IgnoredReason `json:"reason,omitempty"`

	// time is the time at which it was received.
	// +required
	Time Timestamp `json:"time,omitempty,omitzero"`

	// message says what the alert reported and why it was ignored. Its wording may change.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Message string `json:"message,omitempty"`
}

// LedgerEntry identifies an AlertEvent that has been folded into the Incident.
type LedgerEntry struct {
	// uid is the AlertEvent's UID.
	// +kubebuilder:validation:MaxLength=64
	// +required
	UID string `json:"uid"`

	// name is the AlertEvent's name.
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// Ledger records which AlertEvents have been folded, so that each is folded exactly once.
type Ledger struct {
	// events are the AlertEvents that have been folded and may still exist, oldest first, without those whose annotation
	// tocsin.dev/settled names the Incident.
	// +kubebuilder:validation:MaxItems=128
	// +listType=atomic
	// +optional
	Events []LedgerEntry `json:"events,omitempty"`

	// resourceVersion is the resourceVersion of the newest folded AlertEvent. An older one that is folded later is
	// counted, but does not change state or content.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`

	// digest proves which alerts have been counted: the sum, modulo 2^128, of the first 128 bits of the SHA-256 hashes
	// of the ids of all folded alerts, as 32 hexadecimal digits.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Digest string `json:"digest,omitempty"`
}

// IncidentStatus is the result of folding the Incident's alerts. The reconciler writes it, and an archiver its archive: both on
// condition of the version that they read, so that the API server need not keep who wrote which of its fields.
//
// +structType=atomic
type IncidentStatus struct {
	// conditions has the types Resolved and Acknowledged and, once a silence was requested or found, Silenced, and, once the
	// Incident opened often, Flapping.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(c, !has(c.observedGeneration) || type(c.observedGeneration) == int)",message="observedGeneration must be an integer"
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime.getFullYear() > 1 && c.lastTransitionTime.getFullYear() < 9999)",message="lastTransitionTime must be an RFC 3339 time"
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// state is Open or Resolved.
	// +optional
	State IncidentState `json:"state,omitempty"`

	// observedGeneration is the generation of the spec that the status describes.
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// alert is the content folded from the episode's alerts.
	// +optional
	Alert AlertContent `json:"alert,omitempty,omitzero"`

	// alertCount is the number of alerts folded into the Incident. Of the reports of people, only firing ones count.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +optional
	AlertCount int64 `json:"alertCount,omitempty"`

	// episode is the current episode or, while the Incident is resolved, the last one.
	// +optional
	Episode *Episode `json:"episode,omitempty,omitzero"`

	// openedTime is the time at which the alert that opened the episode was received.
	// +optional
	OpenedTime *Timestamp `json:"openedTime,omitempty,omitzero"`

	// resolvedTime is the time at which the alert that ended the episode was received. Absent while Open.
	// +optional
	ResolvedTime *Timestamp `json:"resolvedTime,omitempty,omitzero"`

	// lastAlertTime is the time at which the newest alert was received, or at most one minute before it was stored. The
	// reports of people leave it as it is, but for firing ones.
	// +optional
	LastAlertTime *Timestamp `json:"lastAlertTime,omitempty,omitzero"`

	// acknowledgement is the acknowledgement of the episode. Absent if nobody acknowledged it, or if it was withdrawn.
	// +optional
	Acknowledgement *Acknowledgement `json:"acknowledgement,omitempty,omitzero"`

	// assignee is who works on the episode, or worked on it when it was resolved. Absent if nobody was assigned, or if that was
	// withdrawn.
	// +optional
	Assignee *Assignee `json:"assignee,omitempty,omitzero"`

	// lastIgnored is the newest alert since the episode began that came too late to change anything but the count. Repeated
	// resolves of an Incident that is Resolved are not told. Absent if there was none.
	// +optional
	LastIgnored *IgnoredAlert `json:"lastIgnored,omitempty,omitzero"`

	// resolution is how the episode was resolved. Absent while Open.
	// +optional
	Resolution *Resolution `json:"resolution,omitempty,omitzero"`

	// expiry is how long the Incident stays open after its last alert, because its sender repeats firing alerts and reports
	// until when each is valid. Absent if the newest firing alert had no expiryTime. Written by the operator, from 1m to 24h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="must be a duration from 0s to 24h, such as 4m"
	// +optional
	Expiry *metav1.Duration `json:"expiry,omitempty"`

	// silence is the newest requested silence of the episode. It stays when its endTime has passed. Absent if there is none, or if
	// somebody has ended it.
	// +optional
	Silence *Silence `json:"silence,omitempty,omitzero"`

	// silencedBy is the silence in Alertmanager that covers the Incident for the longest time, whoever made it, other than
	// silences of acknowledgements. Present while the condition Silenced is True.
	// +optional
	SilencedBy *Silence `json:"silencedBy,omitempty,omitzero"`

	// mute says that a maintenance window of the integration keeps the Incident from being forwarded, or kept it from being
	// forwarded when it was resolved. Written by the operator.
	// +optional
	Mute *Mute `json:"mute,omitempty,omitzero"`

	// forwarding says whether people are told of the open Incident by an Alertmanager, or were told of it before it was resolved.
	// Absent while that is not known, for some seconds after the episode began, and if the operator forwards nothing and no
	// maintenance window is open. Written by the operator.
	// +optional
	Forwarding *Forwarding `json:"forwarding,omitempty,omitzero"`

	// flapping is what is known of an Incident that opens often. Absent in the first episode. Written by the operator.
	// +optional
	Flapping *Flapping `json:"flapping,omitempty,omitzero"`

	// retention is a copy of the integration's retention, which applies after the integration has been deleted. Written
	// by the operator. Default: 168h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('87600h')",message="must be a duration from 0s to 87600h, such as 168h"
	// +optional
	Retention *metav1.Duration `json:"retention,omitempty"`

	// orphanedTime is the time at which the retention of the resolved Incident ended while its WebhookIntegration did
	// not exist. The Incident is deleted after the default retention from then on. Written by the operator; absent when
	// the WebhookIntegration exists again.
	// +optional
	OrphanedTime *Timestamp `json:"orphanedTime,omitempty,omitzero"`

	// timeline has the newest 20 transitions, oldest first.
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	// +optional
	Timeline []Transition `json:"timeline,omitempty"`

	// archive says which ended episodes are in the archive. Written by the operator and by its archiver. Absent without an
	// archive, and before the first episode has ended.
	// +optional
	Archive *ArchiveStatus `json:"archive,omitempty,omitzero"`

	// unarchivedEpisodes are ended episodes, oldest first, that the operator keeps until they are in the archive, because the
	// Incident was reopened before. Empty without an archive.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	UnarchivedEpisodes []UnarchivedEpisode `json:"unarchivedEpisodes,omitempty"`

	// ledger records which AlertEvents have been folded.
	// +optional
	Ledger Ledger `json:"ledger,omitempty,omitzero"`
}

// Incident is a problem that is or was ongoing: the result of folding all alerts with one dedup key.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=incidents,shortName=inc,categories=tocsin
// +kubebuilder:selectablefield:JSONPath=`.status.state`
// +kubebuilder:selectablefield:JSONPath=`.status.alert.severity`
// +kubebuilder:selectablefield:JSONPath=`.status.archive.state`
// +kubebuilder:selectablefield:JSONPath=`.spec.integrationName`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Severity",type=string,JSONPath=`.status.alert.severity`
// +kubebuilder:printcolumn:name="Ack",type=string,JSONPath=`.status.conditions[?(@.type=="Acknowledged")].status`
// +kubebuilder:printcolumn:name="Forwarding",type=string,JSONPath=`.status.forwarding.reason`
// +kubebuilder:printcolumn:name="Count",type=integer,JSONPath=`.status.alertCount`
// +kubebuilder:printcolumn:name="Last-Seen",type=date,JSONPath=`.status.lastAlertTime`
// +kubebuilder:printcolumn:name="Title",type=string,JSONPath=`.status.alert.title`
// +kubebuilder:printcolumn:name="Assignee",type=string,JSONPath=`.status.assignee.name`,priority=1
// +kubebuilder:printcolumn:name="Integration",type=string,JSONPath=`.spec.integrationName`,priority=1
// +kubebuilder:printcolumn:name="Dedup-Key",type=string,JSONPath=`.spec.dedupKey`,priority=1
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.status.alert.hostname`,priority=1
// +kubebuilder:printcolumn:name="Muted",type=string,JSONPath=`.status.mute.window`,priority=1
// +kubebuilder:printcolumn:name="Muted-Until",type=string,JSONPath=`.status.mute.endTime`,priority=1
// +kubebuilder:printcolumn:name="Flapping",type=string,JSONPath=`.status.conditions[?(@.type=="Flapping")].status`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,priority=1
type Incident struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec identifies the alerts that belong to the Incident.
	// +required
	Spec IncidentSpec `json:"spec,omitempty,omitzero"`

	// status is the result of folding the Incident's alerts. Written by the operator only.
	// +optional
	Status IncidentStatus `json:"status,omitempty,omitzero"`
}

// IncidentList is a list of Incidents.
//
// +kubebuilder:object:root=true
type IncidentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`
	Items           []Incident `json:"items"`
}
