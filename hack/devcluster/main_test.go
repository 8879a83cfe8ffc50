package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

func TestRun(t *testing.T) {
	manager := buildManager(t)

	t.Run("it runs on a control plane of its own, and forwards", func(t *testing.T) {
		g := NewWithT(t)
		t.Setenv("KUBECONFIG", "")
		port := freePort(t)
		file := filepath.Join(t.TempDir(), "alertmanagers.yaml")
		g.Expect(os.WriteFile(file, []byte("alertmanagers: [{url: 'http://127.0.0.1:9'}]"), 0o600)).To(Succeed())
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		out := &script{steps: []step{{"What happens", func(string) { stop() }}}}
		o := options{manager: manager, folder: t.TempDir(), port: port, alertmanagers: file}
		g.Expect(run(ctx, o, out)).To(Succeed(), "%s", &out.text)
		g.Expect(out.steps).To(BeEmpty())
		log, err := os.ReadFile(filepath.Join(o.folder, strconv.Itoa(port), "manager.log"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(log)).To(ContainSubstring("Loaded Alertmanager configuration"))
		text := out.text.String()
		g.Expect(text).To(MatchRegexp(`(?m)^export KUBECONFIG=/\S+\nexport TOCSIN_ENDPOINT=http://127.0.0.1:\d+$`))
		g.Expect(text).To(MatchRegexp(`(?m)^kubectl get incidents$`))
		g.Expect(strings.Count(text, "\ncurl -d '{")).To(Equal(2))
	})

	t.Run("it runs on the cluster of KUBECONFIG, which is left as it is", func(t *testing.T) {
		g := NewWithT(t)
		t.Setenv("KUBECONFIG", "")
		existing, err := openCluster(t.TempDir(), io.Discard)
		g.Expect(err).NotTo(HaveOccurred())
		defer func() { g.Expect(existing.close()).To(Succeed()) }()
		t.Setenv("KUBECONFIG", existing.kubeconfig)

		dying := filepath.Join(t.TempDir(), "dying")
		g.Expect(os.WriteFile(dying, []byte("#!/bin/sh\necho these are my last words\nexit 3\n"), 0o700)).To(Succeed())
		for _, o := range []options{{manager: dying}, {manager: manager, archiver: dying, archive: "archive"}} {
			o.folder, o.port = t.TempDir(), freePort(t)
			err = run(t.Context(), o, io.Discard)
			g.Expect(err).To(MatchError(And(ContainSubstring("exit status 3"), ContainSubstring("these are my last words"))))
		}

		// The API server pauses for two seconds before the first create of a kind whose CRD is new. An alert that took this long to
		// store would count as one that was perhaps stored twice, and wait for the first 30 s of the manager's life.
		event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: demoNamespace, GenerateName: "warm-up-"}}
		g.Expect(existing.client.Create(t.Context(), event, client.DryRunAll)).To(MatchError(apierrors.IsInvalid, "IsInvalid"))

		// It tells of the Incidents, starts a manager again that is killed, and stops when it is told to.
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
		pid := filepath.Join(t.TempDir(), "pid")
		wrapper := filepath.Join(t.TempDir(), "manager")
		g.Expect(os.WriteFile(wrapper, []byte("#!/bin/sh\necho $$ >"+pid+"\nexec "+manager+" \"$@\"\n"), 0o700)).To(Succeed())
		kill := func(string) {
			text, err := os.ReadFile(pid)
			g.Expect(err).NotTo(HaveOccurred())
			number, err := strconv.Atoi(strings.TrimSpace(string(text)))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(syscall.Kill(number, syscall.SIGKILL)).To(Succeed())
		}
		post := func(body string) func(string) {
			return func(text string) {
				url := regexp.MustCompile(`http://\S+/webhook/\S+`).FindString(text)
				_, err := testenv.Call(ctx, http.MethodPost, url, body)
				g.Expect(err).NotTo(HaveOccurred())
			}
		}
		told := &script{steps: []step{
			{"What happens", kill},
			{"The manager ended (signal: killed). Starting it again.\n", func(string) {}},
			{"The manager is ready again.\n", post(fireBody)}, // between the lines, it may tell of an Incident
			{"Open      critical  Disk 97 % full\n", post(resolveBody)},
			{"Resolved  critical  Disk 97 % full\n", func(string) { stop() }},
		}}
		g.Expect(run(ctx, options{manager: wrapper, folder: t.TempDir(), port: freePort(t)}, told)).To(Succeed())
		g.Expect(told.steps).To(BeEmpty())
		g.Expect(told.text.String()).To(And(ContainSubstring("get incidents -n "+demoNamespace+"\n"), HaveSuffix("Stopping.\n")))
		g.Expect(existing.client.List(t.Context(), &v1alpha1.IncidentList{})).To(Succeed())
	})

	t.Run("a taken port is an error before anything is started", func(t *testing.T) {
		g := NewWithT(t)
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		g.Expect(err).NotTo(HaveOccurred())
		defer func() { g.Expect(listener.Close()).To(Succeed()) }()
		var out bytes.Buffer
		err = run(t.Context(), options{manager: manager, folder: t.TempDir(), port: listener.Addr().(*net.TCPAddr).Port}, &out)
		g.Expect(err).To(MatchError(And(ContainSubstring("is taken"), ContainSubstring("make run PORT="))))
		g.Expect(out.String()).To(BeEmpty())
	})
}

// script is a writer that does what its steps say, one after the other, when their words have been written.
type script struct {
	mu    sync.Mutex
	text  strings.Builder
	steps []step
}

type step struct {
	words string
	do    func(text string) // with all that was written
}

func (s *script) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.text.Write(p)
	if len(s.steps) > 0 && strings.Contains(s.text.String(), s.steps[0].words) {
		do := s.steps[0].do
		s.steps = s.steps[1:]
		do(s.text.String())
	}
	return n, err
}

func buildManager(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "manager")
	NewWithT(t).Expect(testenv.BuildManager(t.Context(), binary)).To(Succeed())
	return binary
}

func freePort(t *testing.T) int {
	t.Helper()
	g := NewWithT(t)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(listener.Close()).To(Succeed()) }()
	return listener.Addr().(*net.TCPAddr).Port
}
