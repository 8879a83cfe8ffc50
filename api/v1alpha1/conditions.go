package v1alpha1

// Condition types of an Incident.
const (
	// ConditionResolved is False from the Incident's first write on, and True while it is Resolved.
	ConditionResolved = "Resolved"
	// ConditionAcknowledged is True once somebody took the Incident on, until a new episode begins.
	ConditionAcknowledged = "Acknowledged"
)

// Reasons of an Incident's conditions.
const (
	ReasonFiring             = "Firing"
	ReasonResolvedByAlert    = "ResolvedByAlert"
	ReasonResolvedByUser     = "ResolvedByUser"
	ReasonAutoResolved       = "AutoResolved"
	ReasonNotAcknowledged    = "NotAcknowledged"
	ReasonAcknowledged       = "AcknowledgedByAlert"
	ReasonAcknowledgedByUser = "AcknowledgedByUser"
)

// ConditionReady is the condition type of a WebhookIntegration: posts with one of its tokens are accepted.
const ConditionReady = "Ready"

// Reasons of a WebhookIntegration's Ready condition.
const (
	// ReasonAccepting: at least one token works.
	ReasonAccepting = "Accepting"
	// ReasonSuspended: spec.suspend is true.
	ReasonSuspended = "Suspended"
	// ReasonNoValidToken: no token is listed, or all have expired.
	ReasonNoValidToken = "NoValidToken"
	// ReasonTokenConflict: another integration held a token's hash first and keeps it.
	ReasonTokenConflict = "TokenConflict"
)

// Further reasons of a WebhookIntegration's Ready condition.
const (
	// ReasonQueueFull: the namespace has so many unfolded AlertEvents that posts are refused.
	ReasonQueueFull = "QueueFull"
	// ReasonIncidentLimit: the namespace has so many Incidents that alerts which need new ones are refused.
	ReasonIncidentLimit = "IncidentLimit"
)

// ConditionAlertsFolded is the condition type of a WebhookIntegration: the alerts of its namespace that are
// stored become part of Incidents. The leader writes it; every replica reads it.
const ConditionAlertsFolded = "AlertsFolded"

// Reasons of a WebhookIntegration's AlertsFolded condition; ReasonIncidentLimit is another one, and so are
// StuckTerminating, StuckUnreadable and StuckQuarantined.
const (
	// ReasonFolding: no alert of the namespace is known to be stuck.
	ReasonFolding = "Folding"
	// ReasonQuotaExceeded: a ResourceQuota of the namespace rejects new Incidents.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonForbidden: the operator lacks the permission to create Incidents in the namespace.
	ReasonForbidden = "Forbidden"
	// ReasonNamespaceTerminating: the namespace is being deleted.
	ReasonNamespaceTerminating = "NamespaceTerminating"
)

// ConditionMappingValid is the condition type of a WebhookIntegration: its preset and mapping compile, and their
// expressions did not fail on what was posted. Without either it is True.
const ConditionMappingValid = "MappingValid"

// Reasons of a WebhookIntegration's MappingValid condition.
const (
	// ReasonMappingValid: the mapping compiles, and no failure of it was seen for MappingFailureMemory.
	ReasonMappingValid = "Valid"
	// ReasonInvalidMapping: the mapping does not compile; posts are accepted and read by the payload rules.
	ReasonInvalidMapping = "InvalidMapping"
	// ReasonEvaluationFailed: an expression failed on an alert that was posted; status.lastMappingFailure has more.
	ReasonEvaluationFailed = "EvaluationFailed"
)
