package fold

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"slices"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/marks"
)

// ledgerBook is an Incident's ledger while a fold works on it. It has no entries but those whose event exists for the
// Incident, and those that the fold adds.
type ledgerBook struct {
	entries []v1alpha1.LedgerEntry
	known   map[string]bool // UIDs of all entries, of the stored ones as well that are left out
	stamp   string
	digest  Digest
}

// openLedger reads a stored ledger. An entry is left out only if exists says that its event does not exist for the
// Incident: it is gone, or marked as settled. The stamp, the newest resourceVersion that is folded, is
// ignored when it is above the Incident's own: then the Incident was made in another cluster, whose numbers mean nothing here.
func openLedger(stored v1alpha1.Ledger, incidentVersion string, exists func(uid string) bool) *ledgerBook {
	book := &ledgerBook{
		known:  make(map[string]bool, len(stored.Events)),
		stamp:  stored.ResourceVersion,
		digest: ParseDigest(stored.Digest),
	}
	for _, entry := range stored.Events {
		book.known[entry.UID] = true
		if exists(entry.UID) {
			book.entries = append(book.entries, entry)
		}
	}
	if NewerVersion(book.stamp, incidentVersion) {
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

// isLate reports whether an event of this resourceVersion is older than the newest folded one.
func (b *ledgerBook) isLate(version string) bool { return NewerVersion(b.stamp, version) }

// advance notes the resourceVersion of a folded event.
func (b *ledgerBook) advance(version string) {
	if b.stamp == "" || NewerVersion(version, b.stamp) {
		b.stamp = version
	}
}

func (b *ledgerBook) close() v1alpha1.Ledger {
	return v1alpha1.Ledger{Events: b.entries, ResourceVersion: b.stamp, Digest: b.digest.String()}
}

func entryOf(event *v1alpha1.AlertEvent) v1alpha1.LedgerEntry {
	return v1alpha1.LedgerEntry{UID: string(event.UID), Name: event.Name}
}

// NewerVersion reports whether a is a newer resourceVersion than b. An invalid resourceVersion is neither
// newer nor older.
func NewerVersion(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// CommitVersion is the resourceVersion that gives an AlertEvent's place in commit order, as far as the object tells: that
// of its mark, else its own. An update of the metadata changes the latter.
func CommitVersion(event *v1alpha1.AlertEvent) string {
	if mark, ok := marks.Of(event); ok {
		return mark.ResourceVersion
	}
	return event.ResourceVersion
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

// Digest is the sum, modulo 2^128, of the first 128 bits of the SHA-256 of every counted alert's
// id. It does not depend on the order, so two folds of the same alerts have the same.
type Digest struct{ high, low uint64 }

// ParseDigest reads a digest that String has written; any other text is the digest of no alerts.
func ParseDigest(text string) Digest {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != 16 {
		return Digest{}
	}
	return Digest{binary.BigEndian.Uint64(raw), binary.BigEndian.Uint64(raw[8:])}
}

// Add counts the id of an alert.
func (d *Digest) Add(alertID string) {
	sum := sha256.Sum256([]byte(alertID))
	var carry uint64
	d.low, carry = bits.Add64(d.low, binary.BigEndian.Uint64(sum[8:16]), 0)
	d.high, _ = bits.Add64(d.high, binary.BigEndian.Uint64(sum[:8]), carry)
}

// String is the digest as 32 hexadecimal digits.
func (d Digest) String() string {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], d.high)
	binary.BigEndian.PutUint64(raw[8:], d.low)
	return hex.EncodeToString(raw[:])
}
