// Package testsite is a namespace with an integration, for the tests of controllers.
//
// Its API server is one in memory, unless a test needs what only a real one has (NewReal); see testenv.MemoryServer.
package testsite

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// Integration is the name of the integration whose alerts a test folds.
const Integration = "shop"

// environment is the control plane, started by the first test that asks for it.
var environment *envtest.Environment

var startControlPlane = sync.OnceValues(func() (*rest.Config, error) {
	environment = testenv.Environment()
	config, err := environment.Start()
	if err != nil {
		return nil, fmt.Errorf("starting the control plane (\"make control-plane\" gets one): %w", err)
	}
	config.QPS = -1
	return config, warmUp(config)
})

var startServer = sync.OnceValues(func() (*rest.Config, error) {
	if config, err := testenv.MemoryServer(); config != nil || err != nil {
		return config, err
	}
	return startControlPlane()
})

// warmUp makes a request that changes nothing: the first ones after the CustomResourceDefinitions were created take seconds, and
// an AlertEvent that is stored so late may be a second copy.
func warmUp(config *rest.Config) error {
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		return err
	}
	event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "warm-"}}
	event.Spec.Report = &v1alpha1.Report{IncidentName: "warm", Status: v1alpha1.AlertResolved}
	return c.Create(context.Background(), event, client.DryRunAll)
}

// Main runs the tests of a package and stops the control plane.
func Main(m *testing.M) {
	ctrl.SetLogger(zap.New(zap.UseDevMode(true), zap.WriteTo(Log)))
	code := m.Run()
	if environment != nil {
		if err := environment.Stop(); err != nil {
			fmt.Fprintf(os.Stderr, "stopping the control plane: %v\n", err)
		}
	}
	os.Exit(code)
}

// Log gathers what is logged.
var Log = gbytes.NewBuffer()

// Site is a namespace with an integration.
type Site struct {
	*gomega.WithT
	Ctx       context.Context
	Namespace string
	Config    *rest.Config // of clients of the API server
	Live      client.WithWatch
	Clock     *clocktesting.FakePassiveClock

	Created map[types.UID]metav1.Time // by the site's clock, of the AlertEvents that it posted
}

// New makes a site.
func New(t *testing.T) *Site {
	t.Helper()
	return newSite(t, startServer)
}

// NewReal makes a site of a real control plane, for what the API server in memory does not have.
func NewReal(t *testing.T) *Site {
	t.Helper()
	return newSite(t, startControlPlane)
}

func newSite(t *testing.T, start func() (*rest.Config, error)) *Site {
	t.Helper()
	g := gomega.NewWithT(t)
	config, err := start()
	g.Expect(err).NotTo(gomega.HaveOccurred())
	mapper := testrestmapper.TestOnlyStaticRESTMapper(testenv.Scheme()) // the server in memory has no discovery
	live, err := client.NewWithWatch(config, client.Options{Scheme: testenv.Scheme(), Mapper: mapper})
	g.Expect(err).NotTo(gomega.HaveOccurred())
	return &Site{
		WithT:     g,
		Ctx:       t.Context(),
		Config:    config,
		Namespace: testenv.Namespace(t, live),
		Live:      live,
		Created:   map[types.UID]metav1.Time{},
		Clock:     clocktesting.NewFakePassiveClock(time.Now().UTC().Truncate(time.Microsecond)),
	}
}

// APIClock tells the time of an API server whose clock is behind another one.
type APIClock struct {
	clock.PassiveClock
	Behind time.Duration
}

// APITime returns the time.
func (c APIClock) APITime() time.Time { return c.Now().Add(-c.Behind) }

// QuietFrom says that alerts could always be stored.
func (APIClock) QuietFrom(types.NamespacedName, time.Time) (time.Time, bool) {
	return time.Time{}, true
}

// RealTime sets the clock.
func (s *Site) RealTime() { s.Clock.SetTime(time.Now()) }

// Alert is what the webhook server would store of a post with this key.
func (s *Site) Alert(status v1alpha1.AlertStatus, key string) v1alpha1.Alert {
	return v1alpha1.Alert{
		ID:           uuid.NewString(),
		IncidentName: v1alpha1.IncidentName(Integration, key),
		DedupKey:     key,
		Status:       status,
	}
}

// Post stores alerts as the webhook server would.
func (s *Site) Post(alerts ...v1alpha1.Alert) *v1alpha1.AlertEvent {
	id, err := uuid.NewV7()
	s.Expect(err).NotTo(gomega.HaveOccurred())
	return s.PostAs(id.String(), alerts...)
}

// PostAs stores them under a name.
func (s *Site) PostAs(name string, alerts ...v1alpha1.Alert) *v1alpha1.AlertEvent {
	event := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: Integration,
			ReceivedTime:    v1alpha1.NewTimestamp(s.Clock.Now()),
		},
		Alerts: alerts,
	}
	s.Expect(testenv.Say(event)).To(gomega.Succeed())
	s.Expect(s.Live.Create(s.Ctx, event, client.FieldOwner(v1alpha1.FieldManager))).To(gomega.Succeed())
	s.Expect(queue.Decode(event)).To(gomega.Succeed())
	s.Created[event.UID] = metav1.NewTime(s.Clock.Now())
	return event
}

// PostFiring stores one alert that fires with this key.
func (s *Site) PostFiring(key string) *v1alpha1.AlertEvent {
	return s.Post(s.Alert(v1alpha1.AlertFiring, key))
}

// Integrate creates the integration.
func (s *Site) Integrate(change func(*v1alpha1.WebhookIntegrationSpec)) *v1alpha1.WebhookIntegration {
	integration := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: Integration}}
	if change != nil {
		change(&integration.Spec)
	}
	s.Expect(s.Live.Create(s.Ctx, integration)).To(gomega.Succeed())
	return integration
}

// IntegrationKey is the name of the integration.
func (s *Site) IntegrationKey() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: Integration}
}

// IntegrationStatus reads the status of the integration.
func (s *Site) IntegrationStatus() v1alpha1.WebhookIntegrationStatus {
	var integration v1alpha1.WebhookIntegration
	s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), &integration)).To(gomega.Succeed())
	return integration.Status
}

// KeyOf is the name of the Incident with this key.
func (s *Site) KeyOf(dedupKey string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: v1alpha1.IncidentName(Integration, dedupKey)}
}

// Incident reads the Incident with this key.
func (s *Site) Incident(dedupKey string) *v1alpha1.Incident {
	incident := &v1alpha1.Incident{}
	s.Expect(s.Live.Get(s.Ctx, s.KeyOf(dedupKey), incident)).To(gomega.Succeed())
	return incident
}

// IncidentNames returns the names of all Incidents.
func (s *Site) IncidentNames() []string { return s.names("Incident") }

// EventNames returns the names of all AlertEvents but canaries.
func (s *Site) EventNames() []string {
	isCanary := func(name string) bool { return strings.HasPrefix(name, v1alpha1.CanaryName) }
	return slices.DeleteFunc(s.names("AlertEvent"), isCanary)
}

func (s *Site) names(kind string) []string {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
	s.Expect(s.Live.List(s.Ctx, &list, client.InNamespace(s.Namespace))).To(gomega.Succeed())
	names := []string{}
	for _, object := range list.Items {
		names = append(names, object.Name)
	}
	return names
}

// ExpectCounted checks an Incident against the alerts that were stored for it.
func (s *Site) ExpectCounted(dedupKey string, events ...*v1alpha1.AlertEvent) {
	var digest queue.Digest
	count := int64(0)
	for _, event := range events {
		s.Expect(queue.Decode(event)).To(gomega.Succeed())
		for i := range event.Alerts {
			if event.IncidentNameFor(&event.Alerts[i]) == s.KeyOf(dedupKey).Name {
				digest.Add(fold.AlertID(event, i))
				count++
			}
		}
	}
	status := s.Incident(dedupKey).Status
	s.Expect(status.AlertCount).To(gomega.Equal(count))
	s.Expect(status.Ledger.Digest).To(gomega.Equal(digest.String()))
}
