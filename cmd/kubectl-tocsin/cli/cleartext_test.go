package cli

import (
	"net/url"
	"testing"

	. "github.com/onsi/gomega"
)

func TestNoTokenLeavesTheMachineUnencrypted(t *testing.T) {
	for target, allowed := range map[string]bool{
		"http://127.0.0.1:8080":                           true,
		"http://[::1]:8080":                               true,
		"http://localhost:8080":                           true,
		"http://tocsin-webhook.tocsin-system.svc:8080":    true, // through the API server
		"https://alerts.example.com":                      true,
		"http://alerts.example.com":                       false,
		"http://10.0.0.1:8080":                            false,
		"http://localhost.example.com":                    false,
		"http://127.0.0.1.example.com":                    false,
		"http://[2001:db8::1]":                            false,
		"http://0.0.0.0":                                  false,
		"http://tocsin-webhook.tocsin-system.example.com": false,
	} {
		t.Run(target, func(t *testing.T) {
			g := NewWithT(t)
			address, err := url.Parse(target)
			g.Expect(err).NotTo(HaveOccurred())
			_, err = (&plugin{}).newClient(address, false)
			if allowed {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(errClearText))
			}
			_, err = (&plugin{}).newClient(address, true)
			g.Expect(err).NotTo(HaveOccurred(), "with --allow-plain-http")
		})
	}
}
