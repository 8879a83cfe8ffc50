package oracle

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
)

// Digest returns the ledger digest of an Incident into which the alerts of these ids were folded.
func Digest(ids []string) string {
	var d digest
	for _, id := range ids {
		d.add(id)
	}
	return d.String()
}

// digest is a sum of hashes modulo 2^128.
type digest struct{ high, low uint64 }

func (d *digest) add(id string) {
	sum := sha256.Sum256([]byte(id))
	var carry uint64
	d.low, carry = bits.Add64(d.low, binary.BigEndian.Uint64(sum[8:16]), 0)
	d.high, _ = bits.Add64(d.high, binary.BigEndian.Uint64(sum[:8]), carry)
}

func (d digest) String() string { return fmt.Sprintf("%016x%016x", d.high, d.low) }

// parseDigest reads a digest; an absent one is zero.
func parseDigest(text string) digest {
	if len(text) != 32 {
		return digest{}
	}
	high, _ := strconv.ParseUint(text[:16], 16, 64)
	low, _ := strconv.ParseUint(text[16:], 16, 64)
	return digest{high, low}
}
