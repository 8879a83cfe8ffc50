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
)

// GoneEntries is how many entries of events that no longer exist stay in a ledger. They are not needed
// against counting an event twice; by their names they tell a second copy of an event, stored by a late
// retry after the first was folded and deleted, from a new one.
const GoneEntries = 8

// ledgerBook is an Incident's ledger while a fold works on it.
type ledgerBook struct {
	entries []v1alpha1.LedgerEntry
	gone    map[string]bool   // by UID: entries whose event no longer exists
	names   map[string]string // UID by name
	present int               // entries whose event may still exist; those of gone ones give way to them
	stamp   string
	digest  Digest
}

// openLedger reads a stored ledger. An entry is gone only when exists says so. The stamp counts for
// nothing when it is above the Incident's own resourceVersion: then the Incident was made in another
// cluster, whose numbers mean nothing here.
func openLedger(stored v1alpha1.Ledger, incidentVersion string, exists func(uid string) bool) *ledgerBook {
	book := &ledgerBook{
		entries: slices.Clone(stored.Events),
		gone:    map[string]bool{},
		names:   map[string]string{},
		stamp:   stored.ResourceVersion,
		digest:  ParseDigest(stored.Digest),
	}
	for _, entry := range book.entries {
		gone := !exists(entry.UID)
		book.gone[entry.UID] = gone
		book.names[entry.Name] = entry.UID
		if !gone {
			book.present++
		}
	}
	if NewerVersion(book.stamp, incidentVersion) {
		book.stamp = ""
	}
	return book
}

// has reports whether the event is settled for this Incident.
func (b *ledgerBook) has(uid string) bool {
	_, ok := b.gone[uid]
	return ok
}

// isCopy reports whether the event is another copy of one in the ledger: the same name, made by the server
// and so never given twice, with another UID. Names given by people or derived from idempotency keys
// may come again.
func (b *ledgerBook) isCopy(uid, name string) bool {
	first, ok := b.names[name]
	return ok && first != uid && v1alpha1.IsGeneratedEventName(name)
}

// add enters an event.
func (b *ledgerBook) add(uid, name string, exists bool) {
	b.entries = append(b.entries, v1alpha1.LedgerEntry{UID: uid, Name: name})
	b.enter(uid, name)
	if !exists {
		b.gone[uid] = true
		b.present--
	}
}

// addBefore enters events that exist before all others, the newest for which there is space.
func (b *ledgerBook) addBefore(events []v1alpha1.LedgerEntry) {
	if room := max(0, v1alpha1.MaxLedger-b.present); len(events) > room {
		events = events[len(events)-room:]
	}
	b.entries = slices.Concat(events, b.entries)
	for _, entry := range events {
		b.enter(entry.UID, entry.Name)
	}
}

func (b *ledgerBook) enter(uid, name string) {
	b.gone[uid] = false
	b.names[name] = uid
	b.present++
}

// isLate reports whether an event of this resourceVersion is older than the newest folded one.
func (b *ledgerBook) isLate(version string) bool { return NewerVersion(b.stamp, version) }

// advance notes the resourceVersion of a folded event.
func (b *ledgerBook) advance(version string) {
	if b.stamp == "" || NewerVersion(version, b.stamp) {
		b.stamp = version
	}
}

// count adds the id of a folded alert to the digest.
func (b *ledgerBook) count(alertID string) { b.digest.Add(alertID) }

// close returns the ledger to store: every entry that may still be needed, and the newest gone ones as
// far as there is room.
func (b *ledgerBook) close() v1alpha1.Ledger {
	excess := len(b.entries) - b.present - min(GoneEntries, max(0, v1alpha1.MaxLedger-b.present))
	kept := make([]v1alpha1.LedgerEntry, 0, len(b.entries))
	for _, entry := range b.entries {
		if excess > 0 && b.gone[entry.UID] {
			excess--
			continue
		}
		kept = append(kept, entry)
	}
	return v1alpha1.Ledger{Events: kept, ResourceVersion: b.stamp, Digest: b.digest.String()}
}

// NewerVersion reports whether a is a newer resourceVersion than b. An invalid resourceVersion is neither
// newer nor older.
func NewerVersion(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// InCommitOrder orders events by resourceVersion, quarantined ones by that of their origin. They are hardly ever updated,
// so that is the order in which they were stored. The other comparisons only make the order total for
// objects that were never in an API server.
func InCommitOrder(a, b *v1alpha1.AlertEvent) int {
	first, second := CommitVersion(a), CommitVersion(b)
	switch {
	case NewerVersion(first, second):
		return 1
	case NewerVersion(second, first):
		return -1
	}
	return cmp.Or(
		cmp.Compare(len(first), len(second)),
		cmp.Compare(first, second),
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
