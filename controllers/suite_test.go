package controllers

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// environment is the control plane, started by the first test that asks for it: the pure tests need none.
var environment *envtest.Environment

var startControlPlane = sync.OnceValues(func() (*rest.Config, error) {
	environment = testenv.Environment()
	config, err := environment.Start()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return config, warmUp(config)
})

// warmUp makes a request that changes nothing: the first ones after the CustomResourceDefinitions were created take seconds, and
// an AlertEvent that is stored so late may be a second copy.
func warmUp(config *rest.Config) error {
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		return err
	}
	event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "warm-"}}
	event.Spec.Alerts = []v1alpha1.Alert{{IncidentName: "warm", Status: v1alpha1.AlertResolved}}
	return c.Create(context.Background(), event, client.DryRunAll)
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(zap.New(zap.UseDevMode(true), zap.WriteTo(testLog)))
	code := m.Run()
	if environment != nil {
		if err := environment.Stop(); err != nil {
			fmt.Fprintf(os.Stderr, "stopping the control plane: %v\n", err)
		}
	}
	os.Exit(code)
}

func controlPlane(t *testing.T) *rest.Config {
	t.Helper()
	config, err := startControlPlane()
	if err != nil {
		t.Fatalf("starting the control plane (\"make control-plane\" gets one): %v", err)
	}
	return config
}

// testLog gathers what is logged.
var testLog = &logBuffer{}

type logBuffer struct {
	mu   sync.Mutex
	data []byte
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data = append(b.data, p...)
	return len(p), nil
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.data)
}
