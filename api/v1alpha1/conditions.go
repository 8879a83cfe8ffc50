package v1alpha1

// Condition types of an Incident.
const (
	// ConditionResolved is True while the Incident is Resolved, else False; it is present from the first write on.
	ConditionResolved = "Resolved"
	// ConditionAcknowledged is True after the Incident has been acknowledged, until the acknowledgement is withdrawn or a new
	// episode begins.
	ConditionAcknowledged = "Acknowledged"
	// ConditionSilenced is True while a silence in Alertmanager covers the forwarded Incident. It is absent until a silence
	// was requested or found.
	ConditionSilenced = "Silenced"
)

// ForwardedLabel is the label by which alerts that Tocsin forwards to Alertmanager name their Incident. Alerts with this
// label are dropped on the way in: they came from a Tocsin.
const ForwardedLabel = "tocsin_incident"

// Reasons of an Incident's conditions.
const (
	ReasonFiring               = "Firing"
	ReasonResolvedByAlert      = "ResolvedByAlert"
	ReasonResolvedByUser       = "ResolvedByUser"
	ReasonAutoResolved         = "AutoResolved"
	ReasonExpired              = "Expired"
	ReasonNotAcknowledged      = "NotAcknowledged"
	ReasonAcknowledged         = "AcknowledgedByAlert"
	ReasonAcknowledgedByUser   = "AcknowledgedByUser"
	ReasonUnacknowledged       = "UnacknowledgedByAlert"
	ReasonUnacknowledgedByUser = "UnacknowledgedByUser"
)

// Reasons of an Incident's Silenced condition.
const (
	// ReasonSilenced: a silence in Alertmanager covers the Incident.
	ReasonSilenced = "SilencedInAlertmanager"
	// ReasonSilenceRequested: a user has requested a silence that was not found in Alertmanager yet.
	ReasonSilenceRequested = "SilenceRequested"
	// ReasonNotSilenced: no silence covers the Incident.
	ReasonNotSilenced = "NotSilenced"
	// ReasonForwardingDisabled: a silence was requested, but the operator does not forward Incidents to Alertmanager.
	ReasonForwardingDisabled = "ForwardingDisabled"
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
	// ReasonInvalidPublicKey: a key of spec.verify cannot be used. Senders that use another one of its keys are accepted.
	ReasonInvalidPublicKey = "InvalidPublicKey"
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

// Reasons of a WebhookIntegration's AlertsFolded condition, besides ReasonIncidentLimit, StuckTerminating and
// StuckUnreadable. Each of the last three concerns single Incidents.
const (
	// ReasonFolding: no alert of the namespace is stuck.
	ReasonFolding = "Folding"
	// ReasonQuotaExceeded: a ResourceQuota of the namespace rejects new Incidents.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonForbidden: the operator lacks the permission to create Incidents in the namespace.
	ReasonForbidden = "Forbidden"
	// ReasonNamespaceTerminating: the namespace is being deleted.
	ReasonNamespaceTerminating = "NamespaceTerminating"
	// ReasonIncidentRejected: the API server, a policy or a webhook rejects an Incident.
	ReasonIncidentRejected = "IncidentRejected"
	// ReasonIncidentTerminating: an Incident is deleted, but finalizers keep it.
	ReasonIncidentTerminating = "IncidentTerminating"
	// ReasonFoldFailed: the fold function fails on the alerts of an Incident.
	ReasonFoldFailed = "FoldFailed"
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

// ConditionForwarded tells whether the Incidents of a WebhookIntegration are forwarded to Alertmanager. It is absent if the
// operator has no configuration for it.
const ConditionForwarded = "Forwarded"

// Reasons of a WebhookIntegration's Forwarded condition.
const (
	// ReasonForwarding: every Alertmanager accepts the Incidents.
	ReasonForwarding = "Forwarding"
	// ReasonSomeFailing: at least one Alertmanager accepts the Incidents, and at least one does not accept all of them.
	ReasonSomeFailing = "SomeAlertmanagersFailing"
	// ReasonAllFailing: no Alertmanager accepts the Incidents.
	ReasonAllFailing = "AlertmanagersFailing"
	// ReasonInvalidConfig: the operator has no valid configuration of Alertmanagers.
	ReasonInvalidConfig = "InvalidConfig"
	// ReasonNotSelected: the configuration selects the integration for no Alertmanager.
	ReasonNotSelected = "NotSelected"
	// ReasonForwardNever: spec.forward is Never.
	ReasonForwardNever = "ForwardNever"
	// ReasonFromAlertmanager: the preset is alertmanager or vmalert, and spec.forward is not Always.
	ReasonFromAlertmanager = "FromAlertmanager"
)

// ConditionArchived is the type of the condition of a WebhookIntegration that tells whether the ended episodes of its
// Incidents come into the archive. It is absent without an archive.
const ConditionArchived = "Archived"

// Reasons of the condition Archived.
const (
	// ReasonArchiving is the reason while the archive keeps up.
	ReasonArchiving = "Archiving"
	// ReasonArchiveBehind is the reason while Incidents of the namespace have waited for the archive for long. None of them is
	// deleted before it has them.
	ReasonArchiveBehind = "ArchiveBehind"
)
