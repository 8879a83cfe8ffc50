package main

import (
	"bytes"
	"net"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/hack/testenv"
)

func TestOnce(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("KUBECONFIG", "")
	o := options{manager: filepath.Join(t.TempDir(), "manager"), port: freePort(t), once: true}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", o.manager, ".")
	build.Dir = testenv.Root()
	output, err := build.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(output))

	var out bytes.Buffer
	g.Expect(run(t.Context(), o, &out)).To(Succeed(), out.String())
	g.Expect(out.String()).To(And(
		ContainSubstring("kubectl get incidents -w"),
		ContainSubstring("# Fire an alert:\ncurl "),
		ContainSubstring("# Resolve it:\ncurl "),
		ContainSubstring("The Incident is Open"),
		ContainSubstring("The Incident is Resolved"),
	))
}

func TestATakenPortIsSaidClearly(t *testing.T) {
	g := NewWithT(t)
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(taken.Close()).To(Succeed()) }()
	var out bytes.Buffer
	err = run(t.Context(), options{port: taken.Addr().(*net.TCPAddr).Port}, &out)
	g.Expect(err).To(MatchError(ContainSubstring("is taken")))
	g.Expect(out.String()).To(BeEmpty())
}

func freePort(t *testing.T) int {
	t.Helper()
	g := NewWithT(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(listener.Close()).To(Succeed()) }()
	return listener.Addr().(*net.TCPAddr).Port
}
