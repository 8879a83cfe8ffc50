package cli

import (
	"net"
	"testing"

	. "github.com/onsi/gomega"
)

func TestNoTokenLeavesTheMachineUnencrypted(t *testing.T) {
	g := NewWithT(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(listener.Close()).To(Succeed()) }()
	connection, err := (&plugin{}).dialer(false)(t.Context(), "tcp", listener.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(connection.Close()).To(Succeed())
	for _, address := range []string{
		"alerts.example.com:80", "10.0.0.1:8080", "localhost.example.com:80", "127.0.0.1.example.com:80", "[2001:db8::1]:80", "0.0.0.0:80",
	} {
		_, err := (&plugin{}).dialer(false)(t.Context(), "tcp", address)
		g.Expect(err).To(MatchError(errClearText), address)
	}
}
