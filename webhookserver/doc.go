// Package webhookserver accepts alerts over HTTP and stores them as AlertEvents.
//
// A request goes through these phases (handler.serve in handler.go). Each has a type, which embeds that of the phase before, and
// a function that makes its value, or ends the request with a problem:
//
//  1. arrived: the operation of the path and the method (package protocol), and the token (authenticate.go).
//  2. authenticated: the integration that lists the hash of the token, from an index by the tag in the token, which the
//     informer of the WebhookIntegrations feeds (authenticate.go).
//  3. checked: the query and the headers are valid (read.go).
//  4. read: the body, within its limits (read.go). A request that cannot be stored soon is rejected before it costs memory.
//  5. decoded: the alerts, as the operation and its preset or the integration's mapping give them (decode.go, packages protocol,
//     mapping and payload).
//  6. stored: the AlertEvent, by package commit. Alerts that need a new Incident are rejected where the namespace may have none
//     (store.go). Only then the sender gets 202 (answer.go).
//
// A query and a ping of a heartbeat are answered once they are checked (query.go, heartbeat.go). The answer, the metrics, the
// log, the span and the reports are made from the last phase that was reached.
//
// A problem of a request that bore a token of an integration is shown in that integration's status and in
// a Kubernetes Event (reports.go, statuswriter.go). The token itself is in no log, metric, status, Event or answer:
// everything is labelled by the route and by the integration's name.
package webhookserver
