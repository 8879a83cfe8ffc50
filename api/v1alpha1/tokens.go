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

// The form of a token that NewToken makes: the prefix, the tag of its integration, an underscore, the secret, the
// checksum. A secret scanner finds it by the regular expression tocsin_[0-9a-f]{32}_[0-9A-Za-z]{49} and knows a
// false alarm by the checksum.
const (
	// TokenPrefix begins every token that NewToken makes.
	TokenPrefix = "tocsin_"

	tokenTagChars    = 32 // 128 bits: nobody finds a second integration with the tag
	tokenSecretBytes = 32 // 256 bits
	tokenSecretChars = 43 // 62^43 > 2^256
	tokenCheckChars  = 6  // 62^6 > 2^32
	tokenHexChars    = 64 // of a secret that a shell made, which has no checksum
)

// ErrTokenChecksum says that a token has the form of NewToken's, but is not one: it was cut or mistyped.
var ErrTokenChecksum = errors.New("the token is not whole: its checksum does not fit")

// base62 are the digits of tokens. None needs escaping in a URL, and a double click selects them all.
const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// NewToken makes a token for one integration: "tocsin_", the integration's tag, "_", 256 random bits in 43 base-62
// digits, and the CRC-32 (IEEE) of those digits in 6 more. It is valid for that integration alone, whoever lists
// its hash.
func NewToken(namespace, name string) string {
	secret := make([]byte, tokenSecretBytes)
	_, _ = rand.Read(secret) // never fails, as the package says
	digits := encodeBase62(new(big.Int).SetBytes(secret), tokenSecretChars)
	return TokenPrefix + TokenTag(namespace, name) + "_" + digits + tokenChecksum(digits)
}

// TokenTag returns the tag of the tokens of an integration: the first 32 hexadecimal digits of the SHA-256 of
// "namespace/name". Neither of the two can contain a slash, so no two integrations share the text, and a shell can
// compute it.
func TokenTag(namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return hex.EncodeToString(sum[:])[:tokenTagChars]
}

// TokenTagOf returns the tag that a token carries, and whether it carries one. A token that does is valid only for
// the integration with that tag; any other secret is valid for the integration that TokenRegistry says.
func TokenTagOf(token string) (tag string, tagged bool) {
	rest, ok := strings.CutPrefix(token, TokenPrefix)
	if !ok || len(rest) <= tokenTagChars || rest[tokenTagChars] != '_' {
		return "", false
	}
	tag = rest[:tokenTagChars]
	for i := range len(tag) {
		if c := tag[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", false
		}
	}
	return tag, true
}

// CheckToken finds tokens of NewToken's that are cut or mistyped. Any other secret passes, one behind a tag that has
// 64 characters too. The errors are ErrTokenChecksum, with what is wrong; they quote nothing of the token.
func CheckToken(token string) error {
	if !strings.HasPrefix(token, TokenPrefix) {
		return nil
	}
	if _, tagged := TokenTagOf(token); !tagged {
		return fmt.Errorf("%w: it has no tag of an integration", ErrTokenChecksum)
	}
	digits := token[len(TokenPrefix)+tokenTagChars+1:]
	switch len(digits) {
	case tokenHexChars:
		return nil
	case tokenSecretChars + tokenCheckChars:
	default:
		return fmt.Errorf("%w: it has %d characters behind the tag instead of %d",
			ErrTokenChecksum, len(digits), tokenSecretChars+tokenCheckChars)
	}
	if tokenChecksum(digits[:tokenSecretChars]) != digits[tokenSecretChars:] {
		return ErrTokenChecksum
	}
	return nil
}

func tokenChecksum(digits string) string {
	sum := crc32.ChecksumIEEE([]byte(digits))
	return encodeBase62(new(big.Int).SetUint64(uint64(sum)), tokenCheckChars)
}

// encodeBase62 writes a number, most significant digit first, with zeros up to the given length.
func encodeBase62(number *big.Int, length int) string {
	text := make([]byte, length)
	base, digit := big.NewInt(int64(len(base62))), new(big.Int)
	for i := length - 1; i >= 0; i-- {
		number.DivMod(number, base, digit)
		text[i] = base62[digit.Int64()]
	}
	return string(text)
}
