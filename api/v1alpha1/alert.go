package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Alert is an accepted alert: its content and the Incident that it belongs to. The JSON of an array of them is spec.alerts of an
// AlertEvent. What a person reports is one as well.
type Alert struct {
	// ID uniquely identifies the alert. Written by the operator; optional in alerts created by hand.
	ID string `json:"id,omitempty"`

	// IncidentName is the name of the Incident that the alert belongs to, in the same namespace. Default: the name derived from
	// integrationName and dedupKey.
	IncidentName string `json:"incidentName,omitempty"`

	// DedupKey is the key that all alerts of an incident share. A firing alert needs one.
	DedupKey string `json:"dedupKey,omitempty"`

	// Status is that of the alert. An alert of a text is not silenced: only a Report is.
	Status AlertStatus `json:"status,omitempty"`

	// ExpiryTime is the time at which the alert ends unless the sender repeats it, as reported by the sender. See
	// status.expiry of an Incident. Ignored in alerts that do not fire.
	ExpiryTime *Timestamp `json:"expiryTime,omitempty,omitzero"`

	// Comment is for the timeline: that of a user, or of a sender whose protocol has comments.
	Comment string `json:"comment,omitempty"`

	AlertContent `json:",inline"`

	// IsReport says that the alert is a Report. Only then it has the others: nobody speaks in a user's name in a text.
	IsReport       bool             `json:"-"`
	By             string           `json:"-"`
	Assignee       string           `json:"-"`
	SilenceFor     *metav1.Duration `json:"-"`
	AcknowledgeFor *metav1.Duration `json:"-"`
}
