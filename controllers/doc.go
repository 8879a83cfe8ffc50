// Package controllers folds AlertEvents into Incidents, exactly once, and deletes what is folded.
//
// Each reconciliation gathers (observe.go), decides (package fold) and acts (incident_actions.go), in the steps of
// incident_controller.go. Gathering reads an Incident, the list of the AlertEvents
// that exist, and those of them that the cache has for this Incident. Deciding is the function fold.Decide: it
// takes the observations and the time, and returns a plan; it has no client, no context and no clock.
// Acting carries the plan out: at most one create, one status write, and the release of events.
//
// # The algorithm
//
// An AlertEvent is an entry of a durable queue. Its creation was acknowledged to the sender, so each of
// its alerts has to be counted in an Incident, and only once, whatever crashes, lags or runs twice. An
// Incident's status has a ledger: the UIDs and names of the events folded into it. The steps and their
// order are what matters:
//
//  1. Read the Incident. A cache that lags will do, unless the Incident is condensed in it; then read it from the quorum.
//  2. After that, list the metadata of all AlertEvents from the quorum. Many folds share one list, but
//     none uses a list that began before its own read of the Incident.
//  3. Take the cached events of this Incident that are in the list and not in the ledger, in commit order,
//     and fold them. The new ledger has them as well, and has lost no entry whose event is in the list.
//     Write the status on condition that the Incident is still the version that was read. If it is not,
//     or if the Incident to create is there already, forget everything and start over.
//  4. Delete the events whose alerts are all settled, on condition of their UIDs. Which these are is kept
//     in memory; whoever lost it finds the same events again and sees from the ledgers that they are
//     settled.
//
// # Condensed Incidents
//
// Resolved Incidents are most of all Incidents, and every replica caches all of them. The cache keeps of a Resolved one only
// what counts and decisions need (v1alpha1.Incident.Condense) and marks its status as Condensed. What a fold decides by
// it is preliminary: whether there is anything to do, and how urgent that is. It never finds less to do than by the whole.
// Before a write, confirm reads the whole Incident (readWhole), and so does deleteIncident for the ledger. A status computed
// from a condensed one keeps the mark, and write rejects it. Whoever else needs the content of a Resolved Incident has to read
// it from the API server.
//
// # Why nothing is counted twice
//
// Say an event was folded by an earlier write, and a fold comes to it again. Either the Incident it read
// is older than that write; then the condition on its own write fails. Or it is not older; then the
// ledger had the event once. If it has it still, the event is skipped. If not, some write between took the
// entry out, and it did so because a list showed the event gone. Gone is for good, a UID never comes
// back, and our list began later: the event is not in it and no candidate. No clock takes part in this, no
// lease, and no numbers but the API server's own check of a resourceVersion. Two leaders at once do no
// harm.
//
// # Why nothing is lost
//
// An event is deleted only after a write that has it in the ledger succeeded, for each of the Incidents
// that it has alerts for. It does not matter how late a cache shows an event: there is no mark below
// which events count as seen. An event that shows up behind a newer one that is folded already is counted;
// it changes neither state nor content, since the newer one spoke after it. The ledger's resourceVersion
// tells that; it decides what an alert may change and never whether it counts. An alert that finds no
// Incident is released only after the quorum confirmed that there is none.
//
// # The same event under two UIDs
//
// A create whose answer was lost is retried under the same name. The API server refuses the second copy
// while the first exists. But the first may be folded and deleted before the retry arrives, and then the
// retry makes a second object with a UID that no ledger has. So entries carry names too, and a ledger keeps
// the newest few whose events are gone: an event with a name made by the server (a UUID, never given
// twice) that stands in the ledger under another UID is a replay. It enters the ledger as settled and
// counts nothing. Besides, the release remembers for a while what it deleted.
//
// # Quarantine
//
// An alert with which an Incident cannot be written is moved: into a copy, an AlertEvent whose name is a hash of the
// original's UID and the Incident's name, and which holds the original's alerts of this Incident with their ids. Three
// steps: create the copy, Unconfirmed; read from the quorum that the original still exists; confirm the copy, by its
// UID. Then the original counts as settled for this Incident, and may be released. The rules of the fold are:
//
//   - While the list has a copy, its original is no candidate.
//   - A copy is settled if the ledger has it or its original; a copy that is folded enters the ledger with its original.
//   - An original's entry leaves the ledger only after both the original and the copy are gone.
//   - A copy that the list shows unconfirmed, without its original, is settled and counts nothing.
//
// Nothing is lost: the original is released only after the copy was confirmed, and a copy is dropped as unconfirmed only if
// the original was released without it, that is, folded. Nothing counts twice: say both were folded. A confirmed
// copy, or one that is listed with its original, existed at a time when its original did. So if the original was folded
// first, its entry was in the ledger then or came later, and could not leave before the copy was gone: the copy's fold
// saw it, or had read an older Incident and failed. If the copy was folded first, its write entered the original,
// whose entry stays while the original exists. A copy made by a process that was asleep until the original was gone is
// never confirmed, because the read comes after the creation.
//
// A copy has its original's place in commit order: it counts, and changes no state that newer alerts have changed since.
// Copies are folded apart from other alerts, a few at a time, so they neither delay them nor fill the ledger.
//
// # Fairness
//
// The queue of the folds, the gate before their writes and the release take turns between namespaces, and none of them has
// all the workers. So an alert waits for those of its own namespace and for one of each other namespace, however
// many these have waiting.
//
// # Bounds
//
// A ledger has space for v1alpha1.MaxLedger events. Entries of deleted events are dropped first; then the
// Incident pauses until events are deleted, and since folding goes in commit order and takes the whole
// event or nothing, none overtakes another. Timeline, messages and content are bounded, so that no
// Incident can grow beyond what the API server stores.
package controllers
