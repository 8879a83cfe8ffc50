package plugin

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
)

// relay passes connections on to the API server, or lets them hang.
type relay struct {
	net.Listener
	mu          sync.Mutex
	flowing     *sync.Cond
	frozen      bool
	connections []net.Conn
}

func startRelay(t *testing.T) *relay {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	r := &relay{Listener: listener}
	r.flowing = sync.NewCond(&r.mu)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.Trim(strings.TrimPrefix(config.Host, "https://"), "/"))
			if err != nil {
				_ = connection.Close()
				continue
			}
			r.mu.Lock()
			r.connections = append(r.connections, connection, server)
			r.mu.Unlock()
			go r.pass(connection, server)
			go r.pass(server, connection)
		}
	}()
	t.Cleanup(r.end)
	return r
}

// pass copies bytes while the relay is not frozen.
func (r *relay) pass(to io.Writer, from io.Reader) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		r.mu.Lock()
		for r.frozen {
			r.flowing.Wait()
		}
		r.mu.Unlock()
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

func (r *relay) freeze(frozen bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = frozen
	r.flowing.Broadcast()
}

// end closes everything: what comes is refused.
func (r *relay) end() {
	r.freeze(false)
	_ = r.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, connection := range r.connections {
		_ = connection.Close()
	}
}

func TestPipedWatchTellsOfOutages(t *testing.T) {
	g := NewWithT(t)
	relay := startRelay(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(writeKubeconfig(kubeconfig, "default")).To(Succeed())
	command := exec.CommandContext(t.Context(), "kubectl-tocsin", "watch", "--server", "https://"+relay.Addr().String())
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	stdout, stderr := gbytes.NewBuffer(), gbytes.NewBuffer()
	command.Stdout, command.Stderr = stdout, stderr
	g.Expect(command.Start()).To(Succeed())
	g.Eventually(stdout, awaitTimeout).Should(gbytes.Say("NAME"), func() string { return string(stderr.Contents()) })

	relay.freeze(true)
	g.Eventually(stderr, awaitTimeout).Should(gbytes.Say("^error: watching incidents: the API server does not respond; retrying\n"))
	relay.freeze(false)
	g.Eventually(stderr, awaitTimeout).Should(gbytes.Say("^The watch is up to date again.\n"))
	relay.end()
	g.Eventually(stderr, awaitTimeout).Should(gbytes.Say("error: watching incidents: the API server refuses connections; retrying\n"))

	g.Expect(command.Process.Signal(os.Interrupt)).To(Succeed())
	g.Expect(command.Wait()).To(Succeed(), "the end of watching is no error")
	g.Expect(string(stderr.Contents())).NotTo(ContainSubstring("https://"))
}
