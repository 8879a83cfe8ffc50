package v1alpha1

// Condition types of an Incident.
const (
	ConditionResolved     = "Resolved"     // True while the Incident is Resolved, else False; present from the first write on
	ConditionAcknowledged = "Acknowledged" // True until the acknowledgement is withdrawn or expires, or a new episode begins
	ConditionSilenced     = "Silenced"     // absent until a silence in Alertmanager was requested or found
	ConditionFlapping     = "Flapping"     // absent until the Incident opened more often than its integration allows
)

// ForwardedLabel is the label by which alerts that Tocsin forwards to Alertmanager name their Incident. Alerts with this
// label are dropped on the way in: they came from a Tocsin. Integrations with spec.federate accept them.
const ForwardedLabel = "tocsin_incident"

// ReminderLabel is the label that counts the expired acknowledgements of an episode, from the first one on: Alertmanager takes
// the alert for a new one, and notifies again.
const ReminderLabel = "tocsin_reminder"

// AssigneeLabel is the label that names who works on an Incident, if the configuration of the forwarding asks for it. When it
// changes, Alertmanager takes the alert for a new one.
const AssigneeLabel = "tocsin_assignee"

// HopsLabel is the label that counts the Tocsins that have forwarded an alert, from the second one on. MaxHops is the largest
// number that is accepted. Without a bound, a Tocsin that forwards to itself would open Incidents about its own for ever.
const (
	HopsLabel = "tocsin_hops"
	MaxHops   = 3
)

// Reasons of an Incident's conditions.
const (
	ReasonFiring               = "Firing"
	ReasonResolvedByAlert      = "ResolvedByAlert"
	ReasonResolvedByUser       = "ResolvedByUser"
	ReasonAutoResolved         = "AutoResolved"
	ReasonExpired              = "Expired" // of Resolved, and of Acknowledged
	ReasonNotAcknowledged      = "NotAcknowledged"
	ReasonAcknowledged         = "AcknowledgedByAlert"
	ReasonAcknowledgedByUser   = "AcknowledgedByUser"
	ReasonUnacknowledged       = "UnacknowledgedByAlert"
	ReasonUnacknowledgedByUser = "UnacknowledgedByUser"

	ReasonSilenced           = "SilencedInAlertmanager" // a silence in Alertmanager covers the Incident
	ReasonSilenceRequested   = "SilenceRequested"       // by a user; it was not found in Alertmanager yet
	ReasonNotSilenced        = "NotSilenced"
	ReasonForwardingDisabled = "ForwardingDisabled" // a silence was requested, but no Incidents are forwarded to Alertmanager

	ReasonOpenedOften = "OpenedOften"
	ReasonNotFlapping = "NotFlapping"
)

// ConditionReady tells whether requests with a token of a WebhookIntegration are accepted. Capacity is no part of it.
const ConditionReady = "Ready"

// Reasons of a WebhookIntegration's Ready condition.
const (
	ReasonAccepting            = "Accepting"            // at least one token is valid
	ReasonSuspended            = "Suspended"            // spec.suspend is true
	ReasonNoValidToken         = "NoValidToken"         // spec.tokens is empty, or all tokens have expired
	ReasonInvalidPublicKey     = "InvalidPublicKey"     // of spec.verify; senders that use another one of its keys are accepted
	ReasonTerminating          = "Terminating"          // the integration is being deleted
	ReasonIntegrationsTooLarge = "IntegrationsTooLarge" // those of the namespace take too much memory together
)

// ConditionAlertsFolded tells whether the stored alerts of a WebhookIntegration's namespace are folded into Incidents.
// The leader writes it; every replica reads it.
const ConditionAlertsFolded = "AlertsFolded"

// Reasons of a WebhookIntegration's AlertsFolded condition, besides StuckTerminating, StuckUnreadable, StuckNotCached and
// ReasonIntegrationsTooLarge. Each of the last three concerns single Incidents.
const (
	ReasonFolding              = "Folding"              // no alert of the namespace is stuck
	ReasonQueueFull            = "QueueFull"            // the namespace has too many unfolded AlertEvents: posts get 503
	ReasonIncidentsFull        = "IncidentsFull"        // too many Incidents: posts of alerts that need a new one get 503
	ReasonIncidentLimit        = "IncidentLimit"        // too many Incidents: stored alerts wait for a new one
	ReasonQuotaExceeded        = "QuotaExceeded"        // a ResourceQuota of the namespace rejects new Incidents
	ReasonForbidden            = "Forbidden"            // the operator lacks the permission to create Incidents in the namespace
	ReasonNamespaceTerminating = "NamespaceTerminating" // the namespace is being deleted
	ReasonIncidentRejected     = "IncidentRejected"     // the API server, a policy or a webhook rejects an Incident
	ReasonIncidentTerminating  = "IncidentTerminating"  // an Incident is deleted, but finalizers keep it
	ReasonFoldFailed           = "FoldFailed"           // the fold function fails on the alerts of an Incident
)

// ConditionMappingValid tells whether the preset and the mapping of a WebhookIntegration compile, and their expressions
// did not fail on received alerts. It is True without a preset and a mapping, and if alerts have no dedup key.
const ConditionMappingValid = "MappingValid"

// Reasons of a WebhookIntegration's MappingValid condition.
const (
	ReasonMappingValid     = "Valid"            // the mapping compiles and has not failed within MappingFailureMemory
	ReasonKeylessAlerts    = "KeylessAlerts"    // as Valid, but alerts come without a dedup key: nothing resolves what fires
	ReasonHandshake        = "HandshakePending" // as Valid, but the tool waits for a person: see status.lastHandshake
	ReasonInvalidMapping   = "InvalidMapping"   // the mapping does not compile; requests are accepted by the payload rules
	ReasonEvaluationFailed = "EvaluationFailed" // an expression failed on a received alert; see status.lastMappingFailure
)

// ConditionForwarded tells whether the Incidents of a WebhookIntegration are forwarded to Alertmanager. It is absent if the
// operator has no configuration for it.
const ConditionForwarded = "Forwarded"

// Reasons of a WebhookIntegration's Forwarded condition.
const (
	ReasonForwarding       = "Forwarding"               // every Alertmanager accepts the Incidents
	ReasonMaintenance      = "Maintenance"              // so it is, but a maintenance window is open, and new Incidents may be muted
	ReasonSomeFailing      = "SomeAlertmanagersFailing" // at least one accepts the Incidents, at least one does not accept all
	ReasonAllFailing       = "AlertmanagersFailing"     // no Alertmanager accepts the Incidents
	ReasonInvalidConfig    = "InvalidConfig"            // the operator has no valid configuration of Alertmanagers
	ReasonNotSelected      = "NotSelected"              // the configuration selects the integration for no Alertmanager
	ReasonForwardNever     = "ForwardNever"             // spec.forward is Never
	ReasonFromAlertmanager = "FromAlertmanager"         // the preset is alertmanager or vmalert, and spec.forward is not Always
)

// ConditionArchived tells whether the ended episodes of a WebhookIntegration's Incidents come into the archive. It is absent
// without an archive.
const ConditionArchived = "Archived"

// Reasons of a WebhookIntegration's Archived condition.
const (
	ReasonArchiving     = "Archiving"     // the archive keeps up
	ReasonArchiveBehind = "ArchiveBehind" // Incidents have waited for the archive for long, and are not deleted before it has them
)
