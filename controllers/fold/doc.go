// Package fold decides what alerts mean for their Incident.
//
// To fold alerts is to reduce all those of one integration and one dedup key, in commit order, into one Incident. Decide
// does it: from the Incident as it was read, the AlertEvents and the time, it returns a Plan, which package controllers
// carries out. The rules are those of docs/lifecycle.md: lifecycle.go has the states, late.go the alerts that come too
// late, merge.go the content, ledger.go the memory of what was folded, expiry.go the deadlines. Preview shows the
// Incidents that alerts would open.
//
// Nothing here does I/O or reads a clock: the same input gives the same plan. Package controllers tells why each alert
// counts exactly once.
package fold
