// Package archive writes a record of every episode that ends to object storage.
//
// # Level-triggered
//
// The archive itself tells what is archived; nothing in the API server is written for it. The leader's memory has the
// versions of episodes that it has written or found in the archive. What an Incident shows beyond them is to be archived:
// its last episode while it is Resolved, and those in status.unarchivedEpisodes, where the fold keeps episodes whose
// Incident was reopened. A new leader reads the days of the archive in which the existing Incidents were resolved, and
// archives the rest. A version is identified by the digest of the ledger, so an alert that is counted after the resolve is
// archived too.
//
// # No deletion before
//
// Package controllers deletes an Incident only if Archived says of every ended episode that its current version is stored.
// So nothing is lost while the store is unavailable, or if the leader is killed at any point.
//
// # Two leaders
//
// Keys of objects are made of their content (see package records). A leader that has lost the lease without noticing it
// adds an outdated version of a record at most, which readers drop.
//
// # Bounds
//
// Incidents are read one by one, live, at a limited rate, and written in batches, so memory does not depend on how many
// wait. The folds do not wait for the archive.
package archive
