package v1alpha1

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

// The format of NewToken's tokens: prefix, tag of the integration, underscore, secret, checksum. Secret scanners can
// detect it by the regular expression tocsin_[0-9a-f]{32}_[0-9A-Za-z]{49} and exclude false positives by the checksum.
const (
	// TokenPrefix is the prefix of every token that NewToken returns.
	TokenPrefix = "tocsin_"

	tokenTagChars    = 32 // 128 bits: a second integration with the same tag cannot be found
	tokenSecretBytes = 32 // 256 bits
	tokenSecretChars = 43 // 62^43 > 2^256
	tokenCheckChars  = 6  // 62^6 > 2^32
	tokenHexChars    = 64 // of a secret created by a shell, which has no checksum
)

// ErrInvalidToken is the error for a token that is not one of Tocsin, or not a whole one.
var ErrInvalidToken = errors.New("the token is truncated or mistyped")

// base62 holds the digits of tokens. None needs escaping in a URL, and a double click selects the whole token.
const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// NewToken returns a new token for an integration: "tocsin_", the integration's tag, "_", 256 random bits in 43 base-62
// digits, and the CRC-32 (IEEE) of those digits in 6 more.
func NewToken(namespace, name string) string {
	secret := make([]byte, tokenSecretBytes)
	_, _ = rand.Read(secret) // never fails
	digits := encodeBase62(new(big.Int).SetBytes(secret), tokenSecretChars)
	return TokenPrefix + TokenTag(namespace, name) + "_" + digits + tokenChecksum(digits)
}

// TokenTag returns the tag of the tokens of an integration: the first 32 hexadecimal digits of the SHA-256 of
// "namespace/name". Neither part can contain a slash, so the text is unique. A shell can compute it.
func TokenTag(namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return hex.EncodeToString(sum[:])[:tokenTagChars]
}

// TokenTagOf returns the tag of a token, empty if it has none. A token is valid only for the integration with that tag.
func TokenTagOf(token string) string {
	rest, _ := strings.CutPrefix(token, TokenPrefix)
	tag, secret, _ := strings.Cut(rest, "_")
	if len(rest) == len(token) || len(tag) != tokenTagChars || secret == "" {
		return ""
	}
	return tag
}

// CheckToken returns an ErrInvalidToken if no integration can accept the token, because it has no tag, or if it is truncated
// or mistyped. Tokens of a shell have 64 characters after the tag and no checksum. The error quotes nothing of the token.
func CheckToken(token string) error {
	if TokenTagOf(token) == "" {
		return fmt.Errorf("%w: no tag of an integration", ErrInvalidToken)
	}
	digits := token[len(TokenPrefix)+tokenTagChars+1:]
	switch len(digits) {
	case tokenHexChars:
		return nil
	case tokenSecretChars + tokenCheckChars:
	default:
		return fmt.Errorf("%w: %d characters after the tag instead of %d",
			ErrInvalidToken, len(digits), tokenSecretChars+tokenCheckChars)
	}
	if tokenChecksum(digits[:tokenSecretChars]) != digits[tokenSecretChars:] {
		return fmt.Errorf("%w: wrong checksum", ErrInvalidToken)
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
