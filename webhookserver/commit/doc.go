// Package commit stores alerts as AlertEvents through group commit, and counts what is stored against its capacity.
//
// A Submission, the alerts of one request, takes this path:
//
//  1. Committer.Commit puts it into the queue of its integration (committer.go). A writer that is free takes as many
//     submissions from the head of a queue as fit into one AlertEvent; shares.go keeps an integration or a namespace in
//     a storm from occupying every writer and all the space in which to wait.
//  2. A writer makes one AlertEvent of the batch and carries it through its attempts (writer.go); outcome.go reads what
//     the API server says of it. A batch that is refused is halved, so that one alert never fails its neighbours.
//  3. Client talks to the API server (client.go). Commit returns once it has acknowledged the write.
//
// PendingEvents and Incidents know, from the informers of this replica, what the cluster already holds, and whether a
// namespace may add to it.
package commit
