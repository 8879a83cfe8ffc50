// Package webhookserver takes alerts in over HTTP and stores them as AlertEvents.
//
// A request goes through these steps, each of which may answer it:
//
//  1. The route and the method (handler.go). Nothing of the body is read yet.
//  2. The token's hash is looked up in an index that the informer of the WebhookIntegrations feeds (tokens.go).
//  3. Overload: too many AlertEvents of the namespace, or too many requests waiting already (package commit, admission.go).
//     A request that cannot be stored soon is refused before it costs memory.
//  4. The body is read, within its limits, and turned into Alerts (body.go, package payload).
//  5. Alerts that need a new Incident are refused where the namespace may have none (accept.go).
//  6. Package commit stores them in an AlertEvent. Only then the sender gets 202.
//
// A refusal of a request that bore a token of an integration is shown in that integration's status and in
// a Kubernetes Event (rejections.go). The token itself is in no log, metric, status, Event or answer:
// everything is labelled by the route and by the integration's name.
package webhookserver
