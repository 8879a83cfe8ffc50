package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	namespace = "shop"

	// The integrations: one for the load, one whose mapping does not compile, and one whose mapping fails.
	loaded, unmapped, failing = "loaded", "unmapped", "failing"

	// rate is how many alerts are posted a second, and keys of how many Incidents.
	rate, keys = 50, 20

	// oddities is how often a second requests come that are refused, or read without their mapping.
	oddities = 2
)

// cluster is a control plane with a manager and an archiver on it.
type cluster struct {
	*testenv.Cluster
	manager, archiver *testenv.Manager
	alertmanager      *httptest.Server
}

// startCluster starts both as their Deployments do, with leader election, and makes the integrations.
func startCluster(ctx context.Context, folder string) (*cluster, error) {
	plane, err := testenv.StartCluster(folder)
	if err != nil {
		return nil, err
	}
	c := &cluster{Cluster: plane}
	file := filepath.Join(folder, "alertmanager.yaml")
	c.alertmanager = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) // accepts everything
	config := []byte("alertmanagers: [{url: '" + c.alertmanager.URL + "'}]")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	elect := []string{"--leader-elect", "--leader-election-namespace=" + namespace}
	if err = createIntegrations(ctx, c.Client); err == nil {
		c.manager, err = c.RunManager(ctx, testenv.ManagerOptions{
			Binary: filepath.Join(testenv.Root(), "bin", "manager"),
			Args: slices.Concat(elect, limits,
				[]string{"--shutdown-delay=0s", "--alertmanager-config=" + file, "--archive-required"}),
		})
	}
	if err == nil {
		c.archiver, err = c.RunManager(ctx, testenv.ManagerOptions{
			Binary: filepath.Join(testenv.Root(), "bin", "archiver"), Args: elect,
			Archive: "file://" + filepath.Join(folder, "archive") + "?create_dir=true",
		})
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func createIntegrations(ctx context.Context, k8s client.Client) error {
	if err := k8s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return fmt.Errorf("making the namespace: %w", err)
	}
	if err := createClosed(ctx, k8s); err != nil {
		return err
	}
	for name, namespace := range map[string]string{loaded: namespace, unmapped: namespace, failing: namespace, closed: closed} {
		integration := &v1alpha1.WebhookIntegration{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       v1alpha1.WebhookIntegrationSpec{Tokens: testenv.Tokens(namespace, name)},
		}
		switch name {
		case unmapped:
			integration.Spec.Mapping = &v1alpha1.Mapping{Drop: "this is no expression"}
		case failing:
			integration.Spec.Mapping = &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{Title: "alert.check.name"}}
		}
		if err := k8s.Create(ctx, integration); err != nil {
			return fmt.Errorf("making the integration %s: %w", name, err)
		}
	}
	return nil
}

// load posts alerts until ctx ends: those of a good sender, and now and then what is refused.
func (c *cluster) load(ctx context.Context) *loadgen.Account {
	go func() {
		ticker := time.NewTicker(time.Second / oddities)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				// What they are answered shows on the dashboard, or its test fails.
				c.post(ctx, namespace, loaded, "[")
				c.post(ctx, namespace, loaded, `{"labels":{"`+v1alpha1.ForwardedLabel+`":"returned"}}`)
				for _, status := range []string{"firing", "resolved"} {
					c.post(ctx, namespace, loaded, `{"dedup_key":"flapping","status":"`+status+`"}`)
				}
				for _, integration := range []string{unmapped, failing, "unknown"} {
					c.post(ctx, namespace, integration, `{"dedup_key":"odd"}`)
				}
				c.post(ctx, closed, closed, `{"dedup_key":"odd"}`)
			}
		}
	}()
	return loadgen.Run(ctx, loadgen.Load{
		URLs: []string{c.manager.WebhookURL + testenv.Token(namespace, loaded)}, Senders: 4, Rate: rate,
		Key: loadgen.RotatingKeys(keys),
	})
}

func (c *cluster) post(ctx context.Context, namespace, integration, body string) {
	url := c.manager.WebhookURL + testenv.Token(namespace, integration)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return
	}
	if response, err := http.DefaultClient.Do(request); err == nil {
		_ = response.Body.Close()
	}
}
