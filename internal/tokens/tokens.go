// Package tokens makes and checks the tokens of senders, and reads their public keys.
package tokens

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math/big"
	"strings"
)

// The format of New's tokens: prefix, tag of the integration, underscore, secret, checksum. Secret scanners can
// detect it by the regular expression tocsin_[0-9a-f]{32}_[0-9A-Za-z]{49} and exclude false positives by the checksum.
const (
	// Prefix is the prefix of every token that New returns.
	Prefix = "tocsin_"

	tokenTagChars    = 32 // 128 bits: a second integration with the same tag cannot be found
	tokenSecretBytes = 32 // 256 bits
	tokenSecretChars = 43 // 62^43 > 2^256
	tokenCheckChars  = 6  // 62^6 > 2^32
	tokenHexChars    = 64 // of a secret created by a shell, which has no checksum
)

// ErrInvalid is the error for a token that is not one of Tocsin, or not a whole one.
var ErrInvalid = errors.New("the token is truncated or mistyped")

// base62 holds the digits of tokens. None needs escaping in a URL, and a double click selects the whole token.
const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// New returns a new token for an integration: "tocsin_", the integration's tag, "_", 256 random bits in 43 base-62
// digits, and the CRC-32 (IEEE) of those digits in 6 more.
func New(namespace, name string) string {
	secret := make([]byte, tokenSecretBytes)
	_, _ = rand.Read(secret) // never fails
	digits := encodeBase62(new(big.Int).SetBytes(secret), tokenSecretChars)
	return Prefix + Tag(namespace, name) + "_" + digits + tokenChecksum(digits)
}

// Hash returns the SHA-256 hash of a token as 64 lower-case hexadecimal digits, as in spec.tokens.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Tag returns the tag of the tokens of an integration: the first 32 hexadecimal digits of the SHA-256 of
// "namespace/name". Neither part can contain a slash, so the text is unique. A shell can compute it.
func Tag(namespace, name string) string {
	return Hash(namespace + "/" + name)[:tokenTagChars]
}

// TagOf returns the tag of a token, empty if it has none. A token is valid only for the integration with that tag.
func TagOf(token string) string {
	rest, _ := strings.CutPrefix(token, Prefix)
	tag, secret, _ := strings.Cut(rest, "_")
	if len(rest) == len(token) || len(tag) != tokenTagChars || secret == "" {
		return ""
	}
	return tag
}

// Check returns an ErrInvalid if no integration can accept the token, because it has no tag, or if it is truncated
// or mistyped. Tokens of a shell have 64 characters after the tag and no checksum. The error quotes nothing of the token.
func Check(token string) error {
	if TagOf(token) == "" {
		return fmt.Errorf("%w: no tag of an integration", ErrInvalid)
	}
	digits := token[len(Prefix)+tokenTagChars+1:]
	switch len(digits) {
	case tokenHexChars:
		return nil
	case tokenSecretChars + tokenCheckChars:
	default:
		return fmt.Errorf("%w: %d characters after the tag instead of %d",
			ErrInvalid, len(digits), tokenSecretChars+tokenCheckChars)
	}
	if tokenChecksum(digits[:tokenSecretChars]) != digits[tokenSecretChars:] {
		return fmt.Errorf("%w: wrong checksum", ErrInvalid)
	}
	return nil
}

func tokenChecksum(digits string) string {
	sum := crc32.ChecksumIEEE([]byte(digits))
	return encodeBase62(new(big.Int).SetUint64(uint64(sum)), tokenCheckChars)
}

// encodeBase62 encodes a number with leading zeros up to the given length.
func encodeBase62(number *big.Int, length int) string {
	text := make([]byte, length)
	base, digit := big.NewInt(int64(len(base62))), new(big.Int)
	for i := length - 1; i >= 0; i-- {
		number.DivMod(number, base, digit)
		text[i] = base62[digit.Int64()]
	}
	return string(text)
}
