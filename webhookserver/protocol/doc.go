// Package protocol knows the APIs that tools already speak: PagerDuty's Events API, Opsgenie's Alert API, CloudEvents and
// Alertmanager's API. A tool that can send to one of them needs no other support for Tocsin than its address and a token.
//
// An Operation is one request of such an API: a method, a path behind the address of the integration, how the request is read
// as payloads, and how its answer looks. The payloads are read by a preset or by the mapping of the integration, as those of
// every other request; authentication, limits, storing and idempotency are the same too. So an operation only translates.
//
// The package is pure: requests in, values out, with no client, no context, no network and no clock.
package protocol
