package tokens_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

func TestPublicKeys(t *testing.T) {
	g := NewWithT(t)
	inPEM := func(public any) string {
		der, err := x509.MarshalPKIXPublicKey(public)
		g.Expect(err).NotTo(HaveOccurred())
		return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	g.Expect(err).NotTo(HaveOccurred())
	large, err := rsa.GenerateKey(rand.Reader, 2048)
	g.Expect(err).NotTo(HaveOccurred())
	elliptical, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	const standard = "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
	for key, mistake := range map[string]string{
		standard:                       "",
		" " + standard + "\n":          "",
		inPEM(large.Public()):          "",
		inPEM(small.Public()):          "2048 to 4096 bits",
		inPEM(elliptical.Public()):     "neither an Ed25519 nor an RSA key",
		"whpk_AAAA":                    "32 bytes",
		"whsec_" + standard:            "not one public key in PEM",
		inPEM(large.Public()) + "more": "not one public key in PEM",
		"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n": "cannot be decoded",
	} {
		_, err := tokens.ParsePublicKey(&v1alpha1.PublicKey{Key: key})
		if mistake == "" {
			g.Expect(err).NotTo(HaveOccurred(), key)
		} else {
			g.Expect(err).To(MatchError(ContainSubstring(mistake)), key)
		}
	}
}
