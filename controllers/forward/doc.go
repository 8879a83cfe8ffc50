// Package forward posts Incidents to Alertmanager, which notifies people. The leader does, for as long as its term lasts.
//
// # How an Incident becomes a post
//
//  1. term.observe (term.go): the folds pass each Incident that they write, or read from the API server, to Forwarder.Observe.
//     An end is queued for each poster, and so is a change of an open one if people have to know it at once. What another
//     process wrote comes from the cache: term.incidentChanged and, when an Incident leaves it, term.incidentGone. A new leader
//     learns of earlier ends from its first sweep, which calls Forwarder.Observe, too. What was observed before is no news.
//  2. poster.run (poster.go): a poster, one for each address of an Alertmanager, takes the Incidents of its next request from
//     its schedule (schedule.go): first those of which it was told, then those of its round, which has all open ones once a
//     minute, or more often if alerts expire earlier. Ended ones come after the round (takeOpen, takeEnded), since open ones
//     expire and ends do not.
//  3. poster.prepare (poster.go) reads each of them, has package alerts, which is pure, decide with which labels Alertmanager is
//     to know it, adds what was posted before and must end, and makes the alerts.
//  4. The splitter of the poster posts them in one request. If Alertmanager accepts only some, it finds out which.
//  5. The record of the poster (record.go) has what was accepted and rejected, by Incident. The next round, the status of the
//     Incident (report.go) and the condition of its integration (condition.go) depend on it.
//
// A term has an endpoint for each Alertmanager of the configuration (package config), which keeps the posters, and a silencer
// that compares the silences there with those that are wanted (package silences, pure). Package alertmanager is the client.
//
// # Invariants
//
//   - Level-triggered: a poster posts what is true now, again and again: every open Incident as an alert that ends some minutes
//     from now, and every Resolved one, for some time, as an alert that has ended. Nothing is stored, so the next round repairs
//     a restart, a failover, a lost request and an Alertmanager that forgot everything.
//   - Identity: while an Incident is open, one set of its labels fires. A request that starts another set ends the former one.
//   - Isolation: each poster has its own queues, connection, record and backoff, so an Alertmanager that is down, slow or
//     hanging delays no other. Namespaces take turns. An alert that is not accepted keeps no other from being posted.
//   - Time: Alertmanager compares the end of an alert with its own clock. A leader whose clock is an hour behind would end every
//     alert at once, so all times are those of the API server, see replica.IngestHealth, and of Alertmanager where its clock
//     differs, see skew.
//   - Lease: nothing is posted after that of the leader has run out.
package forward
