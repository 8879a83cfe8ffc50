package tokens

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"strings"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// standardKeyPrefix begins an Ed25519 public key as Standard Webhooks writes it.
const standardKeyPrefix = "whpk_"

// Sizes in bits of the RSA keys that are accepted.
const (
	minRSABits = 2048
	maxRSABits = 4096
)

// ParsePublicKey returns the key: an ed25519.PublicKey or an *rsa.PublicKey.
func ParsePublicKey(k *v1alpha1.PublicKey) (crypto.PublicKey, error) {
	if encoded, isStandard := strings.CutPrefix(strings.TrimSpace(k.Key), standardKeyPrefix); isStandard {
		raw, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(raw) != ed25519.PublicKeySize {
			return nil, errors.New("it is not whpk_ and 32 bytes in base64")
		}
		return ed25519.PublicKey(raw), nil
	}
	block, rest := pem.Decode([]byte(k.Key))
	if block == nil || block.Type != "PUBLIC KEY" || strings.TrimSpace(string(rest)) != "" {
		return nil, errors.New("it is not one public key in PEM")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, errors.New("it cannot be decoded")
	}
	switch key := key.(type) {
	case ed25519.PublicKey:
		return key, nil
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits >= minRSABits && bits <= maxRSABits {
			return key, nil
		}
		return nil, errors.New("an RSA key must have 2048 to 4096 bits")
	}
	return nil, errors.New("it is neither an Ed25519 nor an RSA key")
}
