// Package webhookserver accepts alerts over HTTP and stores them as AlertEvents.
//
// A request goes through these steps of the handler, each of which may answer it:
//
//  1. authenticate: the operation of the path and the method (package protocol), and the integration of the token's hash,
//     from an index that the informer of the WebhookIntegrations feeds (request.go, tokens.go). Nothing of the body is read
//     yet.
//  2. checkRequest: a request that cannot be stored soon is refused before it costs memory (package commit).
//  3. The body is read, within its limits (body.go), and decoded into alerts by the operation and by its preset or the
//     integration's mapping (decode.go, packages protocol, mapping and payload).
//  4. Alerts that need a new Incident are refused where the namespace may have none (store.go).
//  5. Package commit stores them in an AlertEvent. Only then the sender gets 202 (answer.go).
//
// A refusal of a request that bore a token of an integration is shown in that integration's status and in
// a Kubernetes Event (reports.go, statuswriter.go). The token itself is in no log, metric, status, Event or answer:
// everything is labelled by the route and by the integration's name.
package webhookserver
