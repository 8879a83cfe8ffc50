// Package archive writes a record of every episode that ends to object storage. It runs in a process of its own, the
// archiver.
//
// # What is archived is in the Incident
//
// status.archive.state is Waiting if an ended episode is not archived; the archiver selects by it. After the records are
// stored, the archiver notes the newest episode and its digest in the status. So nothing else remembers what is archived,
// and every archiver begins where the last one ended. The digest changes when an alert is counted after the resolve, so
// this is archived too, as a newer version of the record.
//
// The leader keeps an episode in status.unarchivedEpisodes if its Incident is reopened before, and deletes an Incident
// only if the note says of every ended episode that its current version is stored.
//
// # The note
//
// A note says Complete only if the Incident has not changed since it was read: the API server compares the
// resourceVersion. If it has changed, the note names the episode all the same, and the Incident waits further.
//
// # Two archivers
//
// Keys of objects are made of their content (see package records). An archiver that has lost the lease without noticing it
// adds an outdated version of a record, which readers drop, or an older note, after which the records are stored once
// more.
//
// # Bounds
//
// The cache has the names of Incidents that wait. They are read one by one at a limited rate, in turns by namespace, and
// written in batches. A round writes what waits at its beginning, for ten seconds or a batch, and the next one begins ten seconds
// after it at the earliest. So neither memory nor the number of objects depends on how fast episodes end.
package archive
