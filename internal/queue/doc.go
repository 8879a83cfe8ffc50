// Package queue has what an AlertEvent is as an entry of the durable queue, for all who write, read, settle and delete one.
//
//   - Text: the alerts are one text in the spec (Encode, Decode).
//   - Order: alerts are folded in the order of resourceVersions (NewerVersion, CommitVersion), which no update of the metadata
//     changes (Memory.Version).
//   - Mark: an annotation names the Incidents for which an AlertEvent is settled while it stays for others (Mark).
//   - Bounds: a replica keeps a bounded part of each namespace's AlertEvents in memory, with or without their content, or as a
//     stub (Cached).
//   - Names: a replica remembers which AlertEvents were deleted, and so knows a second copy (Memory).
//
// It has no client: package commit writes AlertEvents, package clustercache watches them, package incident folds them, and
// package release marks and deletes them. Package controllers has the algorithm, and why each alert counts exactly once.
package queue
