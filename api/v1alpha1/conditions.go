package v1alpha1

// Condition types of an Incident.
const (
	// ConditionResolved is True while the Incident is Resolved, else False; it is present from the first write on.
	ConditionResolved = "Resolved"
	// ConditionAcknowledged is True after the Incident has been acknowledged, until a new episode begins.
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

// ConditionReady tells whether requests with a token of a WebhookIntegration are accepted.
const ConditionReady = "Ready"

// Reasons of a WebhookIntegration's Ready condition.
const (
	// ReasonAccepting: at least one token is valid.
	ReasonAccepting = "Accepting"
	// ReasonSuspended: spec.suspend is true.
	ReasonSuspended = "Suspended"
	// ReasonNoValidToken: spec.tokens is empty, or all tokens have expired.
	ReasonNoValidToken = "NoValidToken"
	// ReasonTokenConflict: another integration held the hash of a token first, and owns it.
	ReasonTokenConflict = "TokenConflict"
)

// Further reasons of a WebhookIntegration's Ready condition.
const (
	// ReasonQueueFull: requests are rejected because the namespace has too many unfolded AlertEvents.
	ReasonQueueFull = "QueueFull"
	// ReasonIncidentLimit: alerts that need a new Incident are rejected because the namespace has too many Incidents.
	ReasonIncidentLimit = "IncidentLimit"
)

// ConditionAlertsFolded tells whether the stored alerts of a WebhookIntegration's namespace are folded into Incidents.
// The leader writes it; every replica reads it.
const ConditionAlertsFolded = "AlertsFolded"

// Reasons of a WebhookIntegration's AlertsFolded condition, besides ReasonIncidentLimit, StuckTerminating,
// StuckUnreadable and StuckQuarantined.
const (
	// ReasonFolding: no alert of the namespace is stuck.
	ReasonFolding = "Folding"
	// ReasonQuotaExceeded: a ResourceQuota of the namespace rejects new Incidents.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonForbidden: the operator lacks the permission to create Incidents in the namespace.
	ReasonForbidden = "Forbidden"
	// ReasonNamespaceTerminating: the namespace is being deleted.
	ReasonNamespaceTerminating = "NamespaceTerminating"
)

// ConditionMappingValid tells whether the preset and the mapping of a WebhookIntegration compile, and their expressions
// did not fail on received alerts. It is True without a preset and a mapping.
const ConditionMappingValid = "MappingValid"

// Reasons of a WebhookIntegration's MappingValid condition.
const (
	// ReasonMappingValid: the mapping compiles and has not failed within MappingFailureMemory.
	ReasonMappingValid = "Valid"
	// ReasonInvalidMapping: the mapping does not compile; requests are accepted, and the payload rules apply.
	ReasonInvalidMapping = "InvalidMapping"
	// ReasonEvaluationFailed: an expression failed on a received alert; see status.lastMappingFailure.
	ReasonEvaluationFailed = "EvaluationFailed"
)
