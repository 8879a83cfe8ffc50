// Package records reads and writes the archive: an object storage bucket that has one record of each episode that ended.
//
// # Layout
//
// An object is gzip-compressed NDJSON, one Record a line. Its key is
//
//	v1/day=2026-11-22/<digest>.ndjson.gz
//
// The day is that of the record's resolvedTime, in UTC. An ended episode keeps its resolvedTime, so all versions of its record
// are in the same day. The digest is that of the object's content, or of the keys of the objects that it was combined from
// (see Combine). A key therefore always has the same records: a repeated write overwrites an object with itself, and a
// process with an outdated view of an episode cannot replace a newer record.
//
// # Repeats
//
// A record may be stored repeatedly, for example by a leader that stopped before it could note the write, and in newer
// versions: alerts that come after the resolve still count. The version with the newest resourceVersion is the right one.
// All returns only that.
package records
