package webhookserver

import (
	"cmp"
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

const (
	// maxSignatureAge is how far a signed time may be from the clock of the API server, in both directions. An id that was
	// stored is remembered for longer (see controllers), so that a copy of a request stores nothing.
	maxSignatureAge    = 5 * time.Minute
	maxSignatures      = 4    // that are tried, each with up to 4 keys
	maxSignatureHeader = 4096 // bytes of the header that lists them
)

var (
	problemSignature = problem{Type: "invalid-signature", Status: http.StatusUnauthorized, Title: "The signature is not valid",
		Detail: "The integration of this token requires a valid signature.", Reason: "InvalidSignature"}
	problemUnsignedPath = problem{Type: "unsigned-path", Status: http.StatusForbidden, Title: "The path is not signed",
		Detail: "The integration of this token requires signatures, which do not include the path. " +
			"Post to the address of the integration.",
		Reason: "UnsignedPath"}
)

// signature is what a sender signed besides the body, and its signatures, as Standard Webhooks describes it for
// asymmetric keys: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
type signature struct {
	id, timestamp string
	candidates    [][]byte // signatures with the version v1a; any may be valid, for a rotation of keys
}

// contentHeader returns the headers from which alerts may be read: all of them, or the signed ones if the integration requires
// signatures. Others could give a signed body another meaning, such as those of CloudEvents in binary mode. The path does too, so
// that checkIntegration allows only that of the integration itself.
func (a *authenticated) contentHeader() http.Header {
	if a.integration.Spec.Verify == nil {
		return a.Header
	}
	return http.Header{"Webhook-Id": a.Header["Webhook-Id"], "Webhook-Timestamp": a.Header["Webhook-Timestamp"]}
}

// readSignature reads the headers of a signature, whose time must be close to that of the request. Svix and the services built on
// it write their name in place of "webhook".
func (a *authenticated) readSignature() (*signature, *problem) {
	read := func(name string) string {
		return strings.TrimSpace(cmp.Or(a.Header.Get("Webhook-"+name), a.Header.Get("Svix-"+name)))
	}
	s := &signature{id: read("Id"), timestamp: read("Timestamp")}
	list := read("Signature")
	if s.id == "" || len(s.id) > maxIdempotencyKeyLength || s.timestamp == "" || list == "" || len(list) > maxSignatureHeader {
		return nil, invalidSignature("webhook-id, webhook-timestamp or webhook-signature is missing or too long.")
	}
	seconds, err := strconv.ParseInt(s.timestamp, 10, 64)
	if err != nil {
		return nil, invalidSignature("webhook-timestamp is not a Unix time in seconds.")
	}
	if a.received.Sub(time.Unix(seconds, 0)).Abs() > maxSignatureAge {
		return nil, invalidSignature("webhook-timestamp is more than 5 minutes from the cluster's clock.")
	}
	for candidate := range strings.FieldsSeq(list) {
		version, encoded, _ := strings.Cut(candidate, ",")
		if version != "v1a" || len(s.candidates) == maxSignatures {
			continue
		}
		if decoded, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			s.candidates = append(s.candidates, decoded)
		}
	}
	if len(s.candidates) == 0 {
		return nil, invalidSignature("webhook-signature has no signature with the version v1a.")
	}
	return s, nil
}

// verify checks that one of the signatures of the id, the time and the body is valid for one of the keys. Nil requires none.
func (s *signature) verify(required *v1alpha1.Verification, body []byte) *problem {
	if s == nil {
		return nil
	}
	signed := append([]byte(s.id+"."+s.timestamp+"."), body...)
	digest := sha256.Sum256(signed)
	for i := range required.PublicKeys {
		key, err := tokens.ParsePublicKey(&required.PublicKeys[i])
		if err != nil {
			continue // the condition Ready shows it
		}
		for _, candidate := range s.candidates {
			switch key := key.(type) {
			case ed25519.PublicKey:
				if ed25519.Verify(key, signed, candidate) {
					return nil
				}
			case *rsa.PublicKey:
				if rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], candidate) == nil {
					return nil
				}
			}
		}
	}
	return invalidSignature("no signature is valid for a public key of spec.verify.")
}

func invalidSignature(detail string) *problem {
	p := problemSignature
	p.OwnerDetail = detail
	return &p
}

// checkSignature reads the signature that the integration requires, if it does.
func (c *checked) checkSignature() (p *problem) {
	if c.integration.Spec.Verify == nil {
		return nil
	}
	if c.signature, p = c.readSignature(); p == nil {
		c.key = "Webhook-Id: " + c.signature.id // a copy of the request could name another key, and would be stored twice
	}
	return p
}
