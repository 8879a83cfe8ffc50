// Package oracle judges what became of alerts by docs/guarantees.md. It takes facts and returns findings: it has no client,
// no clock and no goroutine.
//
// The facts are
//
//   - the commits of the API server, in order: every version of every AlertEvent, Incident and WebhookIntegration,
//   - the records of the senders: each request with its alerts and the answers,
//   - Options: what is known about the configuration, and what a scenario makes meaningless,
//   - a Moment: when the faults ended, and what the time is.
//
// Each finding begins with the letter of the guarantee that it breaks.
//
//	h := oracle.NewHistory(oracle.Options{})
//	for _, commit := range commits {
//		h.Commit(commit)
//	}
//	findings := h.Check(records, oracle.Moment{FaultsEnded: ended, Now: now})
//
// A simulation may call Findings after each commit: it returns what the commits alone break, at the first commit that
// breaks it. Check adds what needs the records or the time.
//
// # How an Incident is judged
//
// A life is one Incident object, from its creation to its deletion, whoever deletes it. The ledger of each status write tells
// which AlertEvents were folded since the write before: those that it lists and the former one did not. The model, which shares
// no code with the operator, takes their alerts in commit order, and must then agree with the status: the count and the digest
// (A), and state, episode, times, timeline and content (B). An AlertEvent counts in one life only. The place of an AlertEvent
// in commit order is that of its first commit, whatever is written to its metadata later. An AlertEvent that is folded after a
// newer one is a finding (B), unless Options.LooseOrder says that the cache sees them in another order.
//
// An AlertEvent is settled for an Incident if it was folded into it, if it matches nothing (the Incident was absent after the
// AlertEvent was committed, while no older AlertEvent was waiting that could open it), or if it must not count: a second copy,
// which has the ids of an earlier AlertEvent (unless that one has stayed for its idempotency key), or a restored one. The
// operator may delete an AlertEvent, or mark it with its annotation, only if it is settled for the Incidents that this
// concerns (A). A ledger may drop an AlertEvent only if it is gone or marked (A).
//
// An AlertEvent is settled within Options.FoldTime if Options.Undisturbed says that nothing was in the way (E): a fault of one
// namespace is in the way of no other one.
//
// An AlertEvent that a user deletes before it is folded may be missing, and its second copy may count.
//
// # What must be told by the facts
//
// The oracle does not know who wrote something: Commit.ByUser says so. Deletions by a user, by the namespace controller and by
// a garbage collector are all ByUser. An Incident that the operator deletes must be Resolved, or have no status.
// Alerts that carry the label SeqLabel belong to the request whose Sent has the same Seq; AlertEvents that a user created need
// none.
package oracle
