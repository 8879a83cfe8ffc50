package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Token authorizes a sender to post alerts. Only its hash is stored. The token names its integration by a tag: it is
// tocsin_, the first 32 hexadecimal digits of the SHA-256 hash of namespace/name, _ and a secret.
type Token struct {
	// name identifies the token within the integration.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +required
	Name string `json:"name,omitempty"`

	// sha256 is the SHA-256 hash of the token, as 64 lower-case hexadecimal digits. The token is valid only if it has the tag
	// of this integration.
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +kubebuilder:validation:XValidation:rule="self != 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'",message="is the hash of an empty text"
	// +required
	SHA256 string `json:"sha256,omitempty"`

	// expirationTime is the time at which the token expires. Default: never.
	// +optional
	ExpirationTime *Timestamp `json:"expirationTime,omitempty,omitzero"`
}

// ForwardPolicy tells which Incidents of an integration are forwarded to Alertmanager.
// +kubebuilder:validation:Enum=Auto;Always;Never
type ForwardPolicy string

// The policies of forwarding.
const (
	ForwardAuto   ForwardPolicy = "Auto"   // unless the preset is alertmanager or vmalert: they have been in an Alertmanager before
	ForwardAlways ForwardPolicy = "Always" // whatever the preset
	ForwardNever  ForwardPolicy = "Never"
)

// ForwardAfter has the times, by severity, for which an Incident stays open before it is forwarded.
// +kubebuilder:validation:MinProperties=1
type ForwardAfter struct {
	// default is the time of severities without a time of their own, from 0s to 24h. Default: 0s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="must be a duration from 0s to 24h, such as 2m"
	// +optional
	Default *metav1.Duration `json:"default,omitempty"`

	// critical is the time of Incidents with the severity critical. Default: default.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="must be a duration from 0s to 24h, such as 2m"
	// +optional
	Critical *metav1.Duration `json:"critical,omitempty"`

	// error is the time of Incidents with the severity error. Default: default.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="must be a duration from 0s to 24h, such as 2m"
	// +optional
	Error *metav1.Duration `json:"error,omitempty"`

	// warning is the time of Incidents with the severity warning. Default: default.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="must be a duration from 0s to 24h, such as 2m"
	// +optional
	Warning *metav1.Duration `json:"warning,omitempty"`

	// info is the time of Incidents with the severity info. Default: default.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="must be a duration from 0s to 24h, such as 2m"
	// +optional
	Info *metav1.Duration `json:"info,omitempty"`
}

// FlappingPolicy says when an Incident flaps, and what Alertmanager is told of it then.
// +kubebuilder:validation:MinProperties=1
type FlappingPolicy struct {
	// openings is how often an Incident may open within the period: one that opens more often is flapping. From 1 to 20. Default: 5.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +optional
	Openings int64 `json:"openings,omitempty"`

	// period is the time in which openings are counted: a duration such as 1h, from 1m to 24h. Default: 1h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="must be a duration from 1m to 24h, such as 1h"
	// +optional
	Period *metav1.Duration `json:"period,omitempty"`

	// keepFiringFor keeps the end of a flapping Incident from Alertmanager until it has been Resolved for this time: a duration such
	// as 10m, from 1m to 24h. If it opens again before, Alertmanager is told of neither. The resolve of a user is forwarded at once.
	// Default: every end is.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="must be a duration from 1m to 24h, such as 10m"
	// +optional
	KeepFiringFor *metav1.Duration `json:"keepFiringFor,omitempty"`
}

// PublicKey verifies signatures of a sender.
type PublicKey struct {
	// name identifies the key within the integration.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +required
	Name string `json:"name,omitempty"`

	// key is an Ed25519 public key as whpk_ and base64, or an Ed25519 or RSA (2048 to 4096 bits) public key in PEM.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^\s*(whpk_[A-Za-z0-9+/]{43}=|-----BEGIN PUBLIC KEY-----[A-Za-z0-9+/=\s]+-----END PUBLIC KEY-----)\s*$`
	// +required
	Key string `json:"key,omitempty"`
}

// Verification requires signatures.
type Verification struct {
	// publicKeys are the keys of the sender. A request must have a valid signature for one of them. To rotate a key, add
	// the new one, reconfigure the sender, and remove the old one.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +listType=map
	// +listMapKey=name
	// +required
	PublicKeys []PublicKey `json:"publicKeys,omitempty"`
}

// WebhookIntegrationSpec defines who may post alerts, and how payloads are converted to alerts.
// +kubebuilder:validation:XValidation:rule="!has(self.federate) || !self.federate || !has(self.mapping)",message="federate and mapping exclude each other"
type WebhookIntegrationSpec struct {
	// tokens are the hashes of the tokens that senders may use. To rotate a token, add the new hash, reconfigure the
	// sender, and remove the old hash. Both tokens are valid in the meantime.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=name
	// +optional
	Tokens []Token `json:"tokens,omitempty"`

	// verify requires that senders also sign each request, as Standard Webhooks describes for asymmetric keys (v1a): the
	// headers webhook-id, webhook-timestamp (at most 5 minutes from the operator's clock) and webhook-signature. Default: a
	// token is enough.
	// +optional
	Verify *Verification `json:"verify,omitempty,omitzero"`

	// suspend rejects every request with 403. Default: false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// defaults apply to fields that the alerts of an incident do not set.
	// +optional
	Defaults *AlertDefaults `json:"defaults,omitempty"`

	// preset is the name of a mapping that ships with the operator for a tool's payloads; auto, for the preset that
	// recognizes a payload; or none, for the payload rules alone. Default: auto, or none if there is a mapping.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]+$`
	// +kubebuilder:validation:Enum=auto;none;alertmanager;apprise;argocd;aws-eventbridge;azure-devops;azure-monitor;better-stack;bitbucket;buildkite;checkmk;circleci;cloudflare;datadog;dynatrace;elastalert;elastic-watcher;falcosidekick;flux;gatus;gitea;github;gitlab;google-cloud-monitoring;grafana;grafana-legacy;grafana-oncall;graylog;harbor;healthchecks;honeycomb;icinga;incident-io;jenkins;kapacitor;kubewatch;librenms;netdata;newrelic;opsgenie;opsgenie-api;pagerduty;pagerduty-webhooks;pingdom;policy-reporter;proxmox;robusta;rollbar;sentry;site24x7;sns-cloudwatch;sonarqube;sonarr;splunk;statuscake;statuspage;thousandeyes;trivy-operator;uptime-kuma;uptimerobot;vmalert;wazuh;zabbix
	// +optional
	Preset string `json:"preset,omitempty"`

	// mapping converts payloads to alerts. It overrides the preset field by field.
	// +optional
	Mapping *Mapping `json:"mapping,omitempty"`

	// forward tells whether the Incidents are forwarded to Alertmanager, if the operator has a configuration for it.
	// Auto: forward, unless the preset is alertmanager or vmalert, whose alerts usually are in an Alertmanager already.
	// Always: forward. Never: do not forward. Default: Auto.
	// +optional
	Forward ForwardPolicy `json:"forward,omitempty"`

	// forwardAfter keeps Incidents from Alertmanager that end by themselves: one is forwarded if it is still open so long after
	// its episode has opened, by its severity. If it ends before, nothing of it is forwarded. Default: at once.
	// +optional
	ForwardAfter *ForwardAfter `json:"forwardAfter,omitempty,omitzero"`

	// flapping says how often an Incident may open until its condition Flapping is True, and what Alertmanager is told of it then. A
	// change counts from the next opening on. Default: more than 5 openings in 1h, of which Alertmanager is told each.
	// +optional
	Flapping *FlappingPolicy `json:"flapping,omitempty,omitzero"`

	// acknowledgementExpiresAfter ends an acknowledgement that is not repeated for this time, unless its report has acknowledgeFor:
	// a duration such as 4h, from 1m to 720h. The Incident is then as one that nobody has acknowledged, and Alertmanager notifies
	// again. It applies to acknowledgements from then on. Default: never.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('720h')",message="must be a duration from 1m to 720h, such as 4h"
	// +optional
	AcknowledgementExpiresAfter *metav1.Duration `json:"acknowledgementExpiresAfter,omitempty"`

	// federate accepts alerts that the Tocsin of another cluster forwards, which are dropped otherwise. The operator creates a
	// Heartbeat for the link: while that is missed, none of the alerts ends. Default: false.
	// +optional
	Federate bool `json:"federate,omitempty"` //nolint:kubeapilinter // there is no third way

	// capture keeps the newest requests in a RequestCapture, to try a changed mapping on them. Only who may edit the namespace can
	// read it. Default: none is kept.
	// +optional
	Capture *Capture `json:"capture,omitempty,omitzero"`

	// objectLabels are the names of alert labels that become labels of the Incident object, alert.tocsin.dev/<name>, so that
	// kubectl get incidents -l selects by them. They are set when an episode begins, from the labels that its first alert has
	// with the defaults. In a value, each character other than letters, digits, -, _ and . becomes _; it has at most 63
	// characters, and begins and ends with a letter or a digit.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	// +listType=set
	// +optional
	ObjectLabels []string `json:"objectLabels,omitempty"`

	// lateFiringWindow is the time after a resolve in which a firing alert is a late duplicate if its startTime falls
	// within the resolved episode: it is counted, and the Incident stays resolved. After this time, such an alert
	// reopens the Incident. A duration such as 1m30s, from 0s (no alert is late) to 24h. Default: that of the preset,
	// else 30s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="must be a duration from 0s to 24h, such as 30s"
	// +optional
	LateFiringWindow *metav1.Duration `json:"lateFiringWindow,omitempty"`

	// autoResolveAfter resolves an Incident that has received no alert for this time: a duration such as 1h30m, from 1m
	// to 87600h. Default: never, or 24h for Incidents with a generated dedup key.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('87600h')",message="must be a duration from 1m to 87600h, such as 1h30m"
	// +optional
	AutoResolveAfter *metav1.Duration `json:"autoResolveAfter,omitempty"`

	// retention is the time after which a resolved Incident is deleted: a duration such as 72h, up to 87600h.
	// Default: 168h. The Incident is kept for the lateFiringWindow in any case.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('87600h')",message="must be a duration from 0s to 87600h, such as 168h"
	// +optional
	Retention *metav1.Duration `json:"retention,omitempty"`
}

// Rejection is a rejected request with a token of the integration.
type Rejection struct {
	// reason is the reason for the rejection, as one CamelCase word.
	// +kubebuilder:validation:MaxLength=64
	// +required
	Reason string `json:"reason"`

	// message is a human-readable description. It contains nothing of the request's content.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`

	// time is the time of the rejection.
	// +required
	Time Timestamp `json:"time,omitempty,omitzero"`
}

// Handshake is what a tool waits for before it sends alerts, and that only a person can do.
type Handshake struct {
	// message is what is to be done. It may quote the request.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Message string `json:"message,omitempty"`

	// time is the time at which the tool asked.
	// +required
	Time Timestamp `json:"time,omitempty,omitzero"`
}

// MappingFailure is a failure of an expression of the mapping on a received alert.
type MappingFailure struct {
	// field is the field of the expression: one of spec.mapping.fields, alerts or drop. If several expressions fail, it
	// is the most important one.
	// +kubebuilder:validation:MaxLength=64
	// +required
	Field string `json:"field"`

	// expression is the expression, or the beginning of a long one.
	// +kubebuilder:validation:MaxLength=256
	// +required
	Expression string `json:"expression"`

	// message is a human-readable description. It may quote the alert.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`

	// count is the approximate number of failures since the first one.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +required
	Count int64 `json:"count,omitempty"`

	// time is the time of the newest failure.
	// +required
	Time Timestamp `json:"time,omitempty,omitzero"`

	// observedGeneration is the generation of the spec whose mapping failed.
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// TokenUse is the last use of a token.
type TokenUse struct {
	// name is the name of the token in spec.tokens.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name,omitempty"`

	// sha256 is the hash of the token. If it is not that of the token in spec.tokens, the use was of an earlier token of this name.
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	// +required
	SHA256 string `json:"sha256,omitempty"`

	// lastUsedTime is the approximate time of the last request with the token, whether or not the request was accepted.
	// +required
	LastUsedTime Timestamp `json:"lastUsedTime,omitempty,omitzero"`
}

// WebhookIntegrationStatus is the observed state of an integration.
type WebhookIntegrationStatus struct {
	// conditions has the types Ready (requests with a token of this integration are accepted), MappingValid (the
	// mapping compiles and can be evaluated), AlertsFolded (the stored alerts of the integration are folded into Incidents,
	// and the namespace has room for more), if the operator forwards Incidents, Forwarded (they are posted to Alertmanager)
	// and, if it has an archive, Archived (the ended episodes are in it).
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(c, !has(c.observedGeneration) || type(c.observedGeneration) == int)",message="observedGeneration must be an integer"
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime.getFullYear() > 1 && c.lastTransitionTime.getFullYear() < 9999)",message="lastTransitionTime must be an RFC 3339 time"
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the status describes.
	// +kubebuilder:validation:XValidation:rule="type(self) == int",message="must be an integer"
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// lastReceivedTime is the time at which the newest alert was accepted. It is updated at most once a minute.
	// +optional
	LastReceivedTime *Timestamp `json:"lastReceivedTime,omitempty,omitzero"`

	// lastKeylessTime is the time at which an alert without a dedup key was last accepted: one that fires, or one that resolves
	// nothing. It is updated at most once an hour, and removed when the spec changes.
	// +optional
	LastKeylessTime *Timestamp `json:"lastKeylessTime,omitempty,omitzero"`

	// lastHandshake is what the sender's tool last waited for before it sends alerts. Written at most once a minute.
	// +optional
	LastHandshake *Handshake `json:"lastHandshake,omitempty,omitzero"`

	// tokens lists the tokens that have been used. Each one is updated at most once an hour.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=name
	// +optional
	Tokens []TokenUse `json:"tokens,omitempty"`

	// lastRejection is the newest rejected request. It is updated at most once a minute.
	// +optional
	LastRejection *Rejection `json:"lastRejection,omitempty,omitzero"`

	// lastUnavailableTime is the time at which a replica reported that it had answered 5xx to a request with a token of this
	// integration, so that an alert was not stored. Each replica updates it at most every 20 seconds. The time without alerts
	// is measured from a minute later on.
	// +optional
	LastUnavailableTime *Timestamp `json:"lastUnavailableTime,omitempty,omitzero"`

	// lastMappingFailure is the newest failure of an expression of the mapping. The replica that observed it updates it
	// at most once a minute.
	// +optional
	LastMappingFailure *MappingFailure `json:"lastMappingFailure,omitempty,omitzero"`
}

// WebhookIntegration authorizes a monitoring tool to post alerts to its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=webhookintegrations,shortName=whi,categories=tocsin
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Mapping-Valid",type=string,JSONPath=`.status.conditions[?(@.type=="MappingValid")].status`
// +kubebuilder:printcolumn:name="Forwarded",type=string,JSONPath=`.status.conditions[?(@.type=="Forwarded")].status`
// +kubebuilder:printcolumn:name="Last-Received",type=date,JSONPath=`.status.lastReceivedTime`
// +kubebuilder:printcolumn:name="Last-Rejection",type=string,JSONPath=`.status.lastRejection.reason`
// +kubebuilder:printcolumn:name="Rejected",type=date,JSONPath=`.status.lastRejection.time`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Preset",type=string,JSONPath=`.spec.preset`,priority=1
// +kubebuilder:printcolumn:name="Mapping-Reason",type=string,JSONPath=`.status.conditions[?(@.type=="MappingValid")].reason`,priority=1
// +kubebuilder:printcolumn:name="Forwarded-Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Forwarded")].reason`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name may have at most 63 characters"
type WebhookIntegration struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec defines who may post alerts, and how payloads are converted to alerts.
	// +required
	Spec WebhookIntegrationSpec `json:"spec"`

	// status is the observed state. Written by the operator.
	// +optional
	Status WebhookIntegrationStatus `json:"status,omitempty,omitzero"`
}

// WebhookIntegrationList is a list of WebhookIntegrations.
//
// +kubebuilder:object:root=true
type WebhookIntegrationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`
	Items           []WebhookIntegration `json:"items"`
}
