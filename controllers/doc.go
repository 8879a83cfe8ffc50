// Package controllers folds AlertEvents into Incidents, exactly once, and deletes what is folded.
//
// It wires its packages together: incident folds, release deletes and marks AlertEvents, sweep visits Resolved Incidents,
// integration writes the status of WebhookIntegrations, summary counts the Incidents of a namespace, and replica has what every
// replica keeps. Package heartbeat finds heartbeats that are missed, and maintenance mutes Incidents; the programs wire them and
// the packages that tell others.
//
// This comment has the algorithm and its proof. docs/internals/architecture.md has the invariants, and what guards each of them.
//
// A reconciliation of an Incident (incident/reconciler.go) decides twice, by the function fold.Decide, which takes facts and the
// time and returns a plan. The first plan is provisional: it goes by the cache alone (incident/gather.go), and tells only whether
// there is anything to do, and whether to create the Incident. After that, the Incident is created or read, the AlertEvents are
// listed, and the second plan is carried out (incident/actions.go): at most one status write that succeeds. Then the AlertEvents
// are passed on to the release (reconciler.settle).
//
// # The algorithm
//
// An AlertEvent is an entry of a durable queue. Its creation was acknowledged to the sender, so each of its alerts has to be
// counted in an Incident, and only once, whatever crashes, lags or runs twice. An event is settled for an Incident when its
// alerts of that Incident are folded and written, are known to match nothing, or are invalid. An Incident's status has a
// ledger: the UIDs of the events folded into it. An event may have a mark, an annotation that names Incidents for which it is
// settled. The steps and their order are what matters:
//
//  1. Read the Incident. A stale cache is sufficient; what it lacks is created, or read from the quorum. If the cache has been
//     behind this process's last write of the Incident for a second, it is read from the quorum too: the write would fail.
//  2. After that, list the metadata of the AlertEvents from the quorum: those of all namespaces, or only of the Incident's
//     namespace while that of all is heavy: over 8 MiB, or slow. Many folds share one list, but none uses a list that began
//     before its own read of the Incident. An event is *listed for* an Incident if the list has it without a mark for that
//     Incident.
//  3. Take the cached events that are listed for the Incident and are not in its ledger, in commit order, and fold them. They
//     enter the ledger. An entry is dropped only if its event is not listed for the Incident any more. Write the status on
//     condition that the Incident is still the version that was read. If it is not, start over.
//  4. Delete the events that are settled for all their Incidents, on condition of their UIDs. Which these are is kept in
//     memory; after a restart, the ledgers and the marks tell it again.
//
// # Why nothing is counted twice
//
// Say write A has folded an event, and another fold finds the event again. There are three cases, by when this other fold read
// the Incident:
//
//   - Before A: its own write fails, as its condition is the version before A.
//   - After A, and the ledger has the event: the event is skipped.
//   - After A, and the ledger does not have it any more: then a write B, after A, dropped the entry, since a list before B
//     showed that the event is gone, or marked for the Incident. The fold read the Incident after B, and listed after that.
//     UIDs are never reused and marks only grow, so its list shows the same: the event is not listed for the Incident, and is
//     not folded.
//
// This needs no clock, no lease, and no numbers but the API server's own check of a resourceVersion. Two leaders at once only
// cause conflicts. (Second copies are another matter, see below.)
//
// # Why nothing is lost
//
// An event is deleted only after it is settled for each of its Incidents, and a mark is written only after the status, or the
// confirmed absence, for which it stands. None is skipped for its age: one that a cache shows after a newer one was folded
// is counted, and changes neither state nor content. An alert that finds no Incident is settled only
// after a quorum read confirmed that there is none, and while the watch has shown all older events.
//
// # Resolved Incidents
//
// The cache has the Incidents that are not Resolved, so memory and the start of a replica do not depend on history. A
// fold that finds no Incident there and is to open one creates it. If one exists, the create fails, and the fold reads it from
// the quorum. A fold that opens nothing, or whose namespace takes no new Incidents, reads it from the quorum, too.
//
// When the watch shows an Incident no longer, it is Resolved or deleted; unless this process resolved it, it is read. The leader
// visits all Resolved Incidents at the start of its term and every hour (package sweep).
//
// # Labels
//
// Labels of alerts may become labels of the Incident object (incident/actions.go). A new Incident is created with them.
// When one is reopened, they are patched before the status, on condition of the UID and the resourceVersion that were read,
// and the status is written over the version that the patch made: as if both were one write. If the patch fails, the status
// is written without it.
//
// # Marks
//
// Marks are for events that stay (release/marks.go): those with an idempotency key, which stay for ten minutes, are marked for
// all Incidents; one that is settled for some of its Incidents while others wait is marked for the former if it would fill
// their ledgers, if one of them is deleted, or after a while. So ledgers have space, an Incident that cannot be written delays no
// other one, and a deleted Incident does not come back from events that it had counted. An ordinary event has no mark.
//
// A mark is written on condition of the UID and the resourceVersion that were read, and adds to the mark that was read. It
// keeps the event's place in commit order, which is the resourceVersion before the first mark. An update of the metadata by a
// user does not move an event either, on replicas whose watch saw it before (queue.Memory.Version).
//
// # Incidents that cannot be written
//
// A status that is invalid, or that a policy or a webhook denies, is written without content at once. If that fails too, if
// the Incident cannot be created, if it is being deleted, or if the fold panics, this Incident waits, with increasing delays
// of at most 30 seconds (incident/blocked.go). The integration's condition AlertsFolded tells it. Its later alerts wait behind
// the earlier ones, so no resolve overtakes the firing that it ends.
//
// # Second copies
//
// A create whose response was lost is retried under the same name (docs/internals/decisions.md says why). The API server
// rejects the second copy while the first exists. But one attempt may be folded and deleted before the other one is stored,
// which then makes an object with a UID that no ledger has. Every replica remembers for two minutes the names that its watch
// saw deleted, whoever leads (queue.Memory). A name that the webhook server has made (a UUID, or a hash of an idempotency key
// if the alerts are the same) and that comes again with another UID is a second copy: it is deleted and never folded
// (replica/copies.go). A key comes again as a new request after its AlertEvent has stayed for ten minutes. The watch shows the
// deletion before the creation, and a fold waits until the memory has seen the event.
//
// A replica that has just started, or whose watch had a gap, does not know the names that were deleted before. So an
// AlertEvent whose alerts were received before the memory began waits for 30 seconds from when the watch shows it, if it may be
// a second copy: the Incident's ledger lacks it, and it is a retry, which the writer annotates, or it was stored more than a
// second after the receipt. By then another replica has deleted the second copy, usually the one that stored it. Both times are
// the API server's.
//
// An alert is counted twice only if every replica that saw the deletion ends, or loses its watch, before it sees the second
// copy, or if that is stored more than two minutes later. Its sender has no response.
//
// # Fairness and bounds
//
// The queue of the folds, the gate before their writes and the release take turns between namespaces (fair.Turns), and no
// namespace has all the places. So an alert waits for those of its own namespace and for one of each other namespace. What
// takes long, as where an admission webhook hangs, gives its place up: a write after 250 ms, a fold or a deletion after a
// second.
//
// A ledger has space for v1alpha1.MaxLedger events that are listed for the Incident. Then the Incident pauses until events are
// deleted or marked, and since folding goes in commit order and takes the whole event or nothing, none overtakes another.
// Timeline, messages and content are bounded, so that no Incident can grow beyond what the API server stores.
package controllers
