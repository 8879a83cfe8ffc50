package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

const (
	demoNamespace   = "tocsin-demo"
	demoIntegration = "demo"

	// fieldOwner owns what is applied.
	fieldOwner = client.FieldOwner("tocsin-make-run")

	// serveTimeout bounds the wait for the API server to serve the CRDs.
	serveTimeout = 20 * time.Second

	// stopTimeout is how long etcd and kube-apiserver have to end before they are killed.
	stopTimeout = 10 * time.Second
)

// cluster is what the manager works on.
type cluster struct {
	environment *envtest.Environment
	client      client.WithWatch
	kubeconfig  string
	theirs      bool // it is the user's
}

// openCluster takes the cluster that KUBECONFIG names, or else starts a control plane, and installs the CRDs.
func openCluster(folder string, out io.Writer) (c *cluster, err error) {
	c = &cluster{environment: testenv.Environment(), kubeconfig: filepath.Join(folder, "kubeconfig")}
	if path := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); path != "" {
		c.kubeconfig, c.theirs = path, true
		if c.environment.Config, err = ctrl.GetConfig(); err != nil {
			return nil, fmt.Errorf("reading the KUBECONFIG %s: %w", path, err)
		}
		_, _ = fmt.Fprintf(out, "Using the cluster of KUBECONFIG=%s, %s.\n", path, c.environment.Config.Host)
	} else {
		_, _ = fmt.Fprintln(out, "Starting etcd and kube-apiserver.")
	}
	if err := c.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the cluster: %w", err), c.close())
	}
	return c, nil
}

func (c *cluster) start() error {
	c.environment.UseExistingCluster = &c.theirs
	c.environment.CRDInstallOptions.MaxTime = serveTimeout
	c.environment.ControlPlaneStopTimeout = stopTimeout
	// Without it kube-apiserver waits a minute for watches to end, of a "kubectl get -w" for example.
	c.environment.ControlPlane.GetAPIServer().Configure().Set("shutdown-send-retry-after", "true")
	config, err := c.environment.Start()
	if err != nil {
		return err
	}
	config.QPS = -1
	if c.client, err = client.NewWithWatch(config, client.Options{Scheme: testenv.Scheme()}); err != nil || c.theirs {
		return err
	}
	own, err := clientcmd.Load(c.environment.KubeConfig)
	if err != nil {
		return err
	}
	for _, kubeContext := range own.Contexts {
		kubeContext.Namespace = demoNamespace
	}
	return clientcmd.WriteToFile(*own, c.kubeconfig)
}

// leaves completes a sentence about the end of all.
func (c *cluster) leaves() string {
	if c.theirs {
		return "; what is in the cluster stays"
	}
	return " and removes its cluster with all Incidents"
}

// close stops what was started. A cluster of the user's keeps what was installed.
func (c *cluster) close() error {
	err := c.environment.Stop()
	if c.theirs {
		return err
	}
	if removeErr := os.Remove(c.kubeconfig); !errors.Is(removeErr, os.ErrNotExist) {
		err = errors.Join(err, removeErr)
	}
	return err
}

// install applies the namespace and the demo integration, and returns the integration's new token.
func (c *cluster) install(ctx context.Context) (token string, err error) {
	err = c.apply(ctx, map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": demoNamespace},
	})
	if err != nil {
		return "", err
	}
	token = tokens.New(demoNamespace, demoIntegration)
	return token, c.apply(ctx, map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       "WebhookIntegration",
		"metadata":   map[string]any{"namespace": demoNamespace, "name": demoIntegration},
		"spec": map[string]any{
			"tokens": []any{map[string]any{"name": "make-run", "sha256": tokens.Hash(token)}},
		},
	})
}

func (c *cluster) apply(ctx context.Context, object map[string]any) error {
	u := &unstructured.Unstructured{Object: object}
	err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("applying the %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}
