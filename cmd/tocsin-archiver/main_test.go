package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/app"
	"github.com/tocsin-dev/tocsin/internal/bucket"
	"github.com/tocsin-dev/tocsin/internal/process"
	"github.com/tocsin-dev/tocsin/internal/records"
)

var config *rest.Config

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, func(c *rest.Config) { config = c })) }

func TestCommandLine(t *testing.T) {
	testenv.TestCommandLines(t, execute, map[string]testenv.CommandLine{
		"help lists the flags":                {Args: "--help", Stdout: "-archive"},
		"the version is printed":              {Args: "--version", Stdout: "tocsin-archiver"},
		"an archive is required":              {Args: "--leader-elect", Code: 2, Stderr: "--archive"},
		"the URL has no credentials":          {Args: "--archive=s3://key:secret@bucket", Code: 2, Stderr: "--archive"},
		"an error does not quote credentials": {Args: "--archive=s3://key:secret@bucket%", Code: 2, Stderr: "--archive: not a URL"},
		"all errors are told":                 {Args: "--archive=x --health-probe-bind-address=x", Code: 2, Stderr: "--health-probe-bind-address"},
	})
}

// start runs a process until the test ends, or until stop is called.
func start(t *testing.T, run func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			NewWithT(t).Expect(<-ended).To(Succeed())
		}
	}
	t.Cleanup(stop)
	return stop
}

// TestArchive runs a manager and an archiver whose store is unavailable at first.
func TestArchive(t *testing.T) {
	g := NewWithT(t)
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	namespace, folder := testenv.Namespace(t, c), filepath.Join(t.TempDir(), "archive")
	g.Expect(c.Create(t.Context(), &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "test"},
		Spec: v1alpha1.WebhookIntegrationSpec{
			Retention: &metav1.Duration{Duration: time.Second}, LateFiringWindow: &metav1.Duration{},
			Tokens: testenv.Tokens(namespace, "test"),
		},
	})).To(Succeed())
	start(t, func(ctx context.Context) error {
		o, err := app.ParseFlags([]string{
			"--archive-required", "--watch-namespaces=" + namespace, "--webhook-bind-address=127.0.0.1:0",
			"--metrics-bind-address=0", "--health-probe-bind-address=0", "--shutdown-delay=0s",
		})
		if err != nil {
			return err
		}
		return app.Run(ctx, o, app.Environment{Config: config, Log: logr.Discard()})
	})
	archive := func(ctx context.Context) error {
		c := &command{url: "file://" + folder, options: process.Options{
			LeaderElect: true, LeaseNamespace: namespace, WatchNamespaces: []string{namespace},
			MetricsAddress: process.Off, ProbeAddress: process.Off, PprofAddress: process.Off,
		}}
		return c.run(ctx, config, logr.Discard())
	}
	stopFirst := start(t, archive)

	name := v1alpha1.IncidentName("test", "x")
	for _, status := range []v1alpha1.AlertStatus{v1alpha1.AlertFiring, v1alpha1.AlertResolved} {
		g.Expect(c.Create(t.Context(), &v1alpha1.AlertEvent{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "test-"},
			Spec: v1alpha1.AlertEventSpec{
				IntegrationName: "test", Alerts: testenv.Text(v1alpha1.Alert{DedupKey: "x", Status: status}),
			},
		})).To(Succeed())
	}
	var incident v1alpha1.Incident
	read := func() error {
		return c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &incident)
	}
	g.Eventually(func() bool { return read() == nil && incident.Status.Archive != nil }, "30s", "50ms").Should(BeTrue())
	g.Expect(incident.Status.Archive.State).To(Equal(v1alpha1.ArchiveWaiting))
	g.Consistently(read, "4s", "200ms").Should(Succeed(), "its retention is over, but it is not archived")
	stopFirst()

	g.Expect(os.Mkdir(folder, 0o700)).To(Succeed())
	start(t, archive) // which gets the lease that the first one has released
	g.Eventually(func() bool { return read() != nil || incident.Status.Archive.State == v1alpha1.ArchiveComplete }, "60s", "100ms").Should(BeTrue())
	opened, err := bucket.Open(t.Context(), "file://"+folder)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = opened.Close() }()
	for record, err := range records.All(t.Context(), opened, records.Query{}) {
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(record.Incident + " " + record.Digest).To(Equal(name + " " + incident.Status.Ledger.Digest))
	}
	g.Eventually(read, "90s", "1s").ShouldNot(Succeed(), "its retention is over, and it is archived")
}
