package v1alpha1

import (
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"math/big"
	"strings"
)

// The form of a token that NewToken makes: the prefix, the secret, the checksum. A secret scanner finds it
// by the regular expression tocsin_[0-9A-Za-z]{49} and knows a false alarm by the checksum.
const (
	// TokenPrefix begins every token that NewToken makes.
	TokenPrefix = "tocsin_"

	tokenSecretBytes = 32 // 256 bits
	tokenSecretChars = 43 // 62^43 > 2^256
	tokenCheckChars  = 6  // 62^6 > 2^32
	tokenLength      = len(TokenPrefix) + tokenSecretChars + tokenCheckChars
)

// ErrTokenChecksum says that a token has the form of NewToken's, but is not one: it was cut or mistyped.
var ErrTokenChecksum = errors.New("the token is not whole: its checksum does not fit")

// base62 are the digits of tokens. None needs escaping in a URL, and a double click selects them all.
const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// NewToken makes a token: "tocsin_", 256 random bits in 43 base-62 digits, and the CRC-32 (IEEE) of those
// digits in 6 more. A WebhookIntegration takes any secret; this form is the one that secret scanners find.
func NewToken() string {
	secret := make([]byte, tokenSecretBytes)
	_, _ = rand.Read(secret) // never fails, as the package says
	digits := encodeBase62(new(big.Int).SetBytes(secret), tokenSecretChars)
	return TokenPrefix + digits + tokenChecksum(digits)
}

// CheckToken finds tokens of NewToken's that are cut or mistyped. Any other secret passes. The errors are
// ErrTokenChecksum, with what is wrong; they quote nothing of the token.
func CheckToken(token string) error {
	digits, ours := strings.CutPrefix(token, TokenPrefix)
	if !ours {
		return nil
	}
	if len(token) != tokenLength {
		return fmt.Errorf("%w: it has %d characters instead of %d", ErrTokenChecksum, len(token), tokenLength)
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
