package fold

import (
	"cmp"

	"slices"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// ledgerBook is an Incident's ledger while a fold works on it. Its entries are those whose event is listed for
// the Incident, and those that the fold adds.
type ledgerBook struct {
	entries []v1alpha1.LedgerEntry
	known   map[string]bool // UIDs of all entries, of the stored ones as well that are left out
	stamp   string
	digest  queue.Digest
}

// openLedger reads a stored ledger. It leaves an entry out only if its event is not listed for the Incident: it is
// gone, or marked. The stamp, the newest resourceVersion that is folded, is ignored when it is above the Incident's
// own: then the Incident was made in another cluster, whose numbers mean nothing here.
func openLedger(stored v1alpha1.Ledger, incidentVersion string, events Listing) *ledgerBook {
	book := &ledgerBook{
		known:  make(map[string]bool, len(stored.Events)),
		stamp:  stored.ResourceVersion,
		digest: queue.ParseDigest(stored.Digest),
	}
	for _, entry := range stored.Events {
		book.known[entry.UID] = true
		if events.IsListed(entry.UID) {
			book.entries = append(book.entries, entry)
		}
	}
	if queue.NewerVersion(book.stamp, incidentVersion) {
		book.stamp = ""
	}
	return book
}

// has reports whether the event is settled for this Incident.
func (b *ledgerBook) has(uid string) bool { return b.known[uid] }

// space is how many further events the ledger can have.
func (b *ledgerBook) space() int { return max(0, v1alpha1.MaxLedger-len(b.entries)) }

func (b *ledgerBook) add(entry v1alpha1.LedgerEntry) {
	b.entries = append(b.entries, entry)
	b.known[entry.UID] = true
}

// addBefore enters events before all others, the newest for which there is space.
func (b *ledgerBook) addBefore(events []v1alpha1.LedgerEntry) {
	events = events[max(0, len(events)-b.space()):]
	b.entries = slices.Concat(events, b.entries)
}

// isOvertaken reports whether an event of this resourceVersion is older than the newest folded one.
func (b *ledgerBook) isOvertaken(version string) bool { return queue.NewerVersion(b.stamp, version) }

// advance notes the resourceVersion of a folded event.
func (b *ledgerBook) advance(version string) {
	if b.stamp == "" || queue.NewerVersion(version, b.stamp) {
		b.stamp = version
	}
}

func (b *ledgerBook) close() v1alpha1.Ledger {
	return v1alpha1.Ledger{Events: b.entries, ResourceVersion: b.stamp, Digest: b.digest.String()}
}

func entryOf(event *v1alpha1.AlertEvent) v1alpha1.LedgerEntry {
	return v1alpha1.LedgerEntry{UID: string(event.UID), Name: event.Name}
}

// AllListed is a Listing in which all AlertEvents are listed, and their objects tell the commit order.
type AllListed struct{}

// IsListed implements Listing.
func (AllListed) IsListed(string) bool { return true }

// Version implements Listing. It returns the resourceVersion of the mark, else that of the AlertEvent itself, which an update of
// the metadata changes.
func (AllListed) Version(event *v1alpha1.AlertEvent) string {
	return queue.CommitVersion(event)
}

// versionedEvent is an event with its place in commit order.
type versionedEvent struct {
	*v1alpha1.AlertEvent
	version string
}

// inCommitOrder orders events by resourceVersion as resourceversion.CompareResourceVersion does: of two numbers without leading
// zeros, the longer one is greater. The order is total, also for objects that were never in an API server.
func inCommitOrder(a, b versionedEvent) int {
	return cmp.Or(
		cmp.Compare(len(a.version), len(b.version)),
		cmp.Compare(a.version, b.version),
		cmp.Compare(a.UID, b.UID),
	)
}
