package webhookserver

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/heartbeat"
)

// The private keys of the tests' senders.
var (
	senderKey   = ed25519.NewKeyFromSeed([]byte(strings.Repeat("a", ed25519.SeedSize)))
	nextKey     = ed25519.NewKeyFromSeed([]byte(strings.Repeat("b", ed25519.SeedSize)))
	strangerKey = ed25519.NewKeyFromSeed([]byte(strings.Repeat("c", ed25519.SeedSize)))
)

// standardKey writes a public key as Standard Webhooks does.
func standardKey(key ed25519.PrivateKey) string {
	public, _ := key.Public().(ed25519.PublicKey)
	return "whpk_" + base64.StdEncoding.EncodeToString(public)
}

// pemKey writes a public key in PEM.
func pemKey(t *testing.T, public crypto.PublicKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// sign returns a signature of the version v1a for the body firing.
func sign(t *testing.T, key crypto.Signer, id string, at time.Time) string {
	t.Helper()
	message, options := []byte(id+"."+strconv.FormatInt(at.Unix(), 10)+"."+firing), crypto.SignerOpts(crypto.Hash(0))
	if _, isRSA := key.(*rsa.PrivateKey); isRSA {
		digest := sha256.Sum256(message)
		message, options = digest[:], crypto.SHA256
	}
	signed, err := key.Sign(rand.Reader, message, options)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return "v1a," + base64.StdEncoding.EncodeToString(signed)
}

// signed sets the headers of a signature.
func signed(id string, at time.Time, signature string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("Webhook-Id", id)
		r.Header.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
		r.Header.Set("Webhook-Signature", signature)
	}
}

// newSignedBench has an integration that requires signatures for one of the keys.
func newSignedBench(keys ...string) *bench {
	b := newBench()
	w := integration("team-a", "prometheus")
	w.Spec.Verify = &v1alpha1.Verification{}
	for i, key := range keys {
		w.Spec.Verify.PublicKeys = append(w.Spec.Verify.PublicKeys, v1alpha1.PublicKey{Name: strconv.Itoa(i), Key: key})
	}
	b.tokens.set(w)
	return b
}

func TestSignatures(t *testing.T) {
	now := time.Now()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	keys := []string{standardKey(senderKey), pemKey(t, nextKey.Public()), pemKey(t, rsaKey.Public())}
	hmac := "v1," + base64.StdEncoding.EncodeToString(make([]byte, 32))
	valid := sign(t, senderKey, "m1", now)
	rename := func(r *http.Request) {
		for _, name := range []string{"Id", "Timestamp", "Signature"} {
			r.Header["Svix-"+name] = r.Header["Webhook-"+name]
			r.Header.Del("Webhook-" + name)
		}
	}
	for sentence, test := range map[string]struct {
		headers []func(*http.Request)
		body    string // default: firing
		reason  string // in the last rejection; empty: accepted
	}{
		"Ed25519":                  {headers: []func(*http.Request){signed("m1", now, valid)}},
		"the next key":             {headers: []func(*http.Request){signed("m1", now, sign(t, nextKey, "m1", now))}},
		"RSA":                      {headers: []func(*http.Request){signed("m1", now, sign(t, rsaKey, "m1", now))}},
		"the names of Svix":        {headers: []func(*http.Request){signed("m1", now, valid), rename}},
		"among others":             {headers: []func(*http.Request){signed("m1", now, hmac+" "+sign(t, strangerKey, "m1", now)+" "+valid)}},
		"a slow clock":             {headers: []func(*http.Request){signed("m1", now.Add(-4*time.Minute), sign(t, senderKey, "m1", now.Add(-4*time.Minute)))}},
		"a fast clock":             {headers: []func(*http.Request){signed("m1", now.Add(4*time.Minute), sign(t, senderKey, "m1", now.Add(4*time.Minute)))}},
		"no signature":             {reason: "missing or too long"},
		"an HMAC alone":            {headers: []func(*http.Request){signed("m1", now, hmac)}, reason: "no signature with the version v1a"},
		"another sender":           {headers: []func(*http.Request){signed("m1", now, sign(t, strangerKey, "m1", now))}, reason: "no signature is valid"},
		"another body":             {headers: []func(*http.Request){signed("m1", now, valid)}, body: firing + " ", reason: "no signature is valid"},
		"another id":               {headers: []func(*http.Request){signed("m2", now, valid)}, reason: "no signature is valid"},
		"another time":             {headers: []func(*http.Request){signed("m1", now.Add(time.Second), valid)}, reason: "no signature is valid"},
		"an old request":           {headers: []func(*http.Request){signed("m1", now.Add(-6*time.Minute), sign(t, senderKey, "m1", now.Add(-6*time.Minute)))}, reason: "more than 5 minutes"},
		"one of tomorrow":          {headers: []func(*http.Request){signed("m1", now.Add(24*time.Hour), sign(t, senderKey, "m1", now.Add(24*time.Hour)))}, reason: "more than 5 minutes"},
		"a time that is none":      {headers: []func(*http.Request){signed("m1", now, valid), with("Webhook-Timestamp", "99999999999999999999")}, reason: "not a Unix time"},
		"a huge header":            {headers: []func(*http.Request){signed("m1", now, strings.Repeat("v1a,AAAA ", 1000)+valid)}, reason: "missing or too long"},
		"too many signatures":      {headers: []func(*http.Request){signed("m1", now, strings.Repeat("v1a,AAAA ", 20)+valid)}, reason: "no signature is valid"},
		"a signature of no length": {headers: []func(*http.Request){signed("m1", now, "v1a,")}, reason: "no signature is valid"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newSignedBench(keys...)
			body := test.body
			if body == "" {
				body = firing
			}
			response := b.post(testPath, body, test.headers...)
			if test.reason == "" {
				g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
				g.Expect(b.store.Stored()).To(HaveLen(1))
				return
			}
			g.Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
			answer, err := io.ReadAll(response.Body)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(answer)).To(ContainSubstring("requires a valid signature"))
			g.Expect(string(answer)).NotTo(ContainSubstring(test.reason), "the sender learns no more")
			g.Expect(b.store.Stored()).To(BeEmpty())
			g.Expect(b.reports.reasons).To(Equal([]string{"InvalidSignature"}))
			g.Expect(b.reports.texts).To(ConsistOf(ContainSubstring(test.reason)))
		})
	}
}

// TestACopyOfASignedRequestStoresNothing sends a captured request again, with everything changed that is not signed.
func TestACopyOfASignedRequestStoresNothing(t *testing.T) {
	g := NewWithT(t)
	b := newSignedBench(standardKey(senderKey))
	now := time.Now()
	headers := signed("m1", now, sign(t, senderKey, "m1", now))
	g.Expect(b.post(testPath, firing, headers).StatusCode).To(Equal(http.StatusAccepted))
	for _, change := range []func(*http.Request){
		with("Idempotency-Key", "another"), with("Svix-Id", "another"), with("X-GitHub-Delivery", "another"),
		with("Content-Type", "application/x-www-form-urlencoded"),
	} {
		g.Expect(b.post(testPath, firing, headers, change).StatusCode).To(Equal(http.StatusAccepted))
		g.Expect(b.store.Stored()).To(HaveLen(1))
	}
	second := signed("m2", now, sign(t, senderKey, "m2", now))
	g.Expect(b.post(testPath, firing, second).StatusCode).To(Equal(http.StatusAccepted))
	g.Expect(b.store.Stored()).To(HaveLen(2), "another message with the same body")
}

// TestASignatureIsForOneOperation sends a captured request to the other paths, and with headers that change its meaning, before
// the sender's own copy arrives. The latter must open its Incident.
func TestASignatureIsForOneOperation(t *testing.T) {
	now := time.Now()
	headers := signed("m1", now, sign(t, senderKey, "m1", now))
	incident := v1alpha1.IncidentName("prometheus", "disk-1")
	for _, operation := range slices.Concat(ownRoutes, heartbeat.New().Routes()) {
		if operation.Path == "" {
			continue
		}
		for _, method := range operation.Methods {
			path := strings.ReplaceAll(operation.Path, "{identifier}", "disk-1")
			t.Run(method+" "+path, func(t *testing.T) {
				g := NewWithT(t)
				b := newSignedBench(standardKey(senderKey))
				b.options.Capacity.SetIncident(&v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: incident}}, false)
				refused := b.post(testPath+path, firing, headers, func(r *http.Request) { r.Method = method })
				g.Expect(refused.StatusCode).To(Equal(http.StatusForbidden))
				g.Expect(b.reports.reasons).To(Equal([]string{"UnsignedPath"}))
				g.Expect(b.post(testPath, firing, headers).StatusCode).To(Equal(http.StatusAccepted))
				g.Expect(b.store.Stored()).To(HaveLen(1))
			})
		}
	}
	binary := func(r *http.Request) {
		for name, value := range map[string]string{"Specversion": "1.0", "Id": "x", "Source": "/other", "Type": "recovered"} {
			r.Header.Set("Ce-"+name, value)
		}
	}
	for sentence, change := range map[string]func(*http.Request){
		"as a CloudEvent in binary mode":     binary,
		"as a CloudEvent in structured mode": with("Content-Type", "application/cloudevents+json"),
		"with a header that a mapping reads": with("X-State", "resolved"),
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newSignedBench(standardKey(senderKey))
			w := integration("team-a", "prometheus", testToken)
			w.Spec.Verify = &v1alpha1.Verification{PublicKeys: []v1alpha1.PublicKey{{Name: "0", Key: standardKey(senderKey)}}}
			w.Spec.Mapping = &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{Status: `headers[?"x-state"].orValue("firing")`}}
			b.tokens.set(w)
			g.Expect(b.post(testPath, firing, headers, change).StatusCode).To(Equal(http.StatusAccepted))
			g.Expect(b.store.Stored()).To(HaveLen(1))
			alert := b.store.Stored()[0].Alerts[0]
			g.Expect(alert.Status).To(Equal(v1alpha1.AlertFiring))
			g.Expect(alert.DedupKey).To(Equal("disk-1"))
			g.Expect(alert.Type).To(BeEmpty())
		})
	}
}

// TestASignatureIsOfTheBodyAsSent has a compressed body refused before it is decompressed.
func TestASignatureIsOfTheBodyAsSent(t *testing.T) {
	g := NewWithT(t)
	b := newSignedBench(standardKey(senderKey))
	response := b.post(testPath, firing, signed("m1", time.Now(), "v1a,AAAA"), with("Content-Encoding", "gzip"))
	g.Expect(response.StatusCode).To(Equal(http.StatusUnsupportedMediaType))
}

// TestAKeyThatCannotBeUsedRefusesNoOther has a broken key beside a good one, and then alone.
func TestAKeyThatCannotBeUsedRefusesNoOther(t *testing.T) {
	g := NewWithT(t)
	now, broken := time.Now(), "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"
	headers := signed("m1", now, sign(t, senderKey, "m1", now))
	g.Expect(newSignedBench(broken, standardKey(senderKey)).post(testPath, firing, headers).StatusCode).To(Equal(http.StatusAccepted))
	g.Expect(newSignedBench(broken).post(testPath, firing, headers).StatusCode).To(Equal(http.StatusUnauthorized))
	g.Expect(newSignedBench().post(testPath, firing, headers).StatusCode).To(Equal(http.StatusUnauthorized))
}
