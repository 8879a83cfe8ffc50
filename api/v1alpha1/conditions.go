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
	// ReasonTokenConflict: a token's hash stands in an older integration too, which keeps it.
	ReasonTokenConflict = "TokenConflict"
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
