package queue

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// NewerVersion reports whether a is a newer resourceVersion than b. An invalid resourceVersion is neither
// newer nor older.
func NewerVersion(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// CommitVersion is the resourceVersion that gives an AlertEvent's place in commit order, as far as the object tells: that
// of its mark, else its own. An update of the metadata changes the latter.
func CommitVersion(event *v1alpha1.AlertEvent) string {
	if mark, ok := MarkOf(event); ok {
		return mark.ResourceVersion
	}
	return event.ResourceVersion
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
	return fmt.Sprintf("%016x%016x", d.high, d.low)
}
