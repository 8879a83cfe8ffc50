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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
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

	servePoll    = 50 * time.Millisecond
	serveTimeout = 20 * time.Second

	// stopTimeout is how long etcd and kube-apiserver have to end before they are killed.
	stopTimeout = 10 * time.Second
)

// cluster is what the manager works on.
type cluster struct {
	config     *rest.Config
	client     client.WithWatch
	kubeconfig string
	// environment is nil when the cluster is the user's.
	environment *envtest.Environment
}

// openCluster takes the cluster that KUBECONFIG names, or else starts a control plane.
func openCluster(folder string, out io.Writer) (*cluster, error) {
	if path := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); path != "" {
		return openKubeconfig(path, out)
	}
	_, _ = fmt.Fprintln(out, "Starting etcd and kube-apiserver.")
	c := &cluster{environment: testenv.Environment(), kubeconfig: filepath.Join(folder, "kubeconfig")}
	c.environment.CRDDirectoryPaths = nil // install does it, as for a cluster of the user's
	c.environment.ControlPlaneStopTimeout = stopTimeout
	// Without it kube-apiserver waits a minute for watches to end, of a "kubectl get -w" for example.
	c.environment.ControlPlane.GetAPIServer().Configure().Set("shutdown-send-retry-after", "true")
	if err := c.start(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *cluster) start() error {
	config, err := c.environment.Start()
	if err != nil {
		return fmt.Errorf("starting the control plane: %w", err)
	}
	if err := c.writeKubeconfig(); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return c.connect(config)
}

// writeKubeconfig writes one whose namespace is that of the demo.
func (c *cluster) writeKubeconfig() error {
	config, err := clientcmd.Load(c.environment.KubeConfig)
	if err != nil {
		return err
	}
	for _, kubeContext := range config.Contexts {
		kubeContext.Namespace = demoNamespace
	}
	return clientcmd.WriteToFile(*config, c.kubeconfig)
}

func openKubeconfig(path string, out io.Writer) (*cluster, error) {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), nil)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the KUBECONFIG %s: %w", path, err)
	}
	_, _ = fmt.Fprintf(out, "Using the cluster of KUBECONFIG=%s, %s.\n", path, config.Host)
	c := &cluster{kubeconfig: path}
	return c, c.connect(config)
}

func (c *cluster) connect(config *rest.Config) error {
	config.QPS = -1
	c.config = config
	var err error
	if c.client, err = client.NewWithWatch(config, client.Options{Scheme: testenv.Scheme()}); err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	return nil
}

// leaves completes a sentence about the end of all.
func (c *cluster) leaves() string {
	if c.environment == nil {
		return "; what is in the cluster stays"
	}
	return " and removes its cluster with all Incidents"
}

// close stops what was started. A cluster of the user's keeps what was installed.
func (c *cluster) close() error {
	if c.environment == nil {
		return nil
	}
	err := c.environment.Stop()
	if removeErr := os.Remove(c.kubeconfig); !errors.Is(removeErr, os.ErrNotExist) {
		err = errors.Join(err, removeErr)
	}
	return err
}

// install applies the CRDs, the namespace and the demo integration, and returns the integration's new token.
func (c *cluster) install(ctx context.Context) (token string, err error) {
	if err := c.installCRDs(ctx); err != nil {
		return "", err
	}
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

// installCRDs applies the CRDs and waits until the API server serves them.
func (c *cluster) installCRDs(ctx context.Context) error {
	options := envtest.CRDInstallOptions{
		Paths:              []string{filepath.Join(testenv.Root(), "config", "crd", "bases")},
		ErrorIfPathMissing: true, PollInterval: servePoll, MaxTime: serveTimeout,
	}
	if err := envtest.ReadCRDFiles(&options); err != nil {
		return err
	}
	for _, crd := range options.CRDs {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
		if err != nil {
			return err
		}
		delete(object, "status")
		if err := c.apply(ctx, object); err != nil {
			return err
		}
	}
	if err := envtest.WaitForCRDs(c.config, options.CRDs, options); err != nil {
		return fmt.Errorf("waiting for the CRDs to be served: %w", err)
	}
	return nil
}

func (c *cluster) apply(ctx context.Context, object map[string]any) error {
	u := &unstructured.Unstructured{Object: object}
	err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("applying the %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}
