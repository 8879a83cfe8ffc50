// Package forward posts Incidents to Alertmanager, which notifies people.
//
// # Level-triggered and stateless
//
// The leader posts what is true now, to each Alertmanager, whenever it changes and once a minute: every Open Incident as an
// alert that ends with its expiry, and every Resolved one, for some time, as an alert that has ended. Nothing is stored:
// a restart, a failover, a lost request and an Alertmanager that forgot everything are all repaired in the next round.
// All that is written for it in the API server are the condition Forwarded of integrations, and whether people are told of each
// Incident (status.go), when they change.
//
// # Identity
//
// Alertmanager identifies an alert by its labels. While an Incident is open they stay the same, except when its severity,
// its type or a forwarded label of the sender changes. The old set is then ended in the request that starts the new one.
// A new leader knows earlier severities from the timeline; a sender remembers everything else that it posted itself.
//
// # Isolation
//
// An endpoint keeps the addresses of one DNS name up to date, and has a sender for each. Every sender has its own queue,
// connection, memory and backoff, so an Alertmanager that is down, slow or hanging delays no other. In a queue, namespaces
// take turns. A request that fails is bisected unless everything fails, so one alert never keeps others from being forwarded.
//
// # Time
//
// An alert ends at a time that Alertmanager compares with its own clock. A leader whose clock is an hour behind would end
// every alert at once. All times are therefore those of the API server, see replica.IngestHealth, and of Alertmanager where its
// clock differs, see moment.
package forward
