package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Cluster is a control plane for a manager binary to work on.
type Cluster struct {
	// Config and Client are an administrator's.
	Config *rest.Config
	Client client.Client
	// Kubeconfig is the path of a configuration for managers and kubectl.
	Kubeconfig string

	environment *envtest.Environment
	managers    []*Manager
}

// StartCluster starts a control plane with the CRDs; its kubeconfig goes into the folder.
func StartCluster(folder string) (*Cluster, error) { return StartClusterOf(folder, Environment()) }

// StartEmptyCluster starts one without the CRDs.
func StartEmptyCluster(folder string) (*Cluster, error) {
	return StartClusterOf(folder, &envtest.Environment{BinaryAssetsDirectory: Assets()})
}

// StartClusterOf starts a control plane as the environment describes it.
func StartClusterOf(folder string, environment *envtest.Environment) (c *Cluster, err error) {
	c = &Cluster{environment: environment, Kubeconfig: filepath.Join(folder, "kubeconfig")}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if c.Config, err = c.environment.Start(); err != nil {
		return c, fmt.Errorf("starting the control plane (\"make control-plane\" gets one): %w", err)
	}
	c.Config.QPS = -1
	user, err := c.environment.AddUser(envtest.User{Name: "cluster-admin", Groups: []string{"system:masters"}}, c.Config)
	if err != nil {
		return c, fmt.Errorf("adding a user: %w", err)
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		return c, fmt.Errorf("making the kubeconfig: %w", err)
	}
	if err = os.WriteFile(c.Kubeconfig, kubeconfig, 0o600); err != nil {
		return c, err
	}
	c.Client, err = client.New(c.Config, client.Options{Scheme: Scheme()})
	return c, err
}

// EtcdURL is where etcd serves its clients, its HTTP gateway included.
func (c *Cluster) EtcdURL() string { return c.environment.ControlPlane.Etcd.URL.String() }

// RunManager runs a manager on the cluster, with its own Kubeconfig, and waits until it is ready. Stop kills it.
func (c *Cluster) RunManager(ctx context.Context, options ManagerOptions) (*Manager, error) {
	options.Kubeconfig = c.Kubeconfig
	m, err := RunManager(ctx, options)
	if err == nil {
		c.managers = append(c.managers, m)
	}
	return m, err
}

// Stop kills the managers and ends the control plane.
func (c *Cluster) Stop() error {
	for _, m := range c.managers {
		m.Kill()
	}
	return c.environment.Stop()
}

// Integrate makes a namespace and in it a WebhookIntegration with this spec and a token, which it returns. The managers that run
// accept the token then.
func (c *Cluster) Integrate(
	ctx context.Context, namespace, name string, spec v1alpha1.WebhookIntegrationSpec,
) (token string, err error) {
	err = c.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	if err != nil {
		return "", fmt.Errorf("creating the namespace %s: %w", namespace, err)
	}
	token, spec.Tokens = Token(namespace, name), Tokens(namespace, name)
	err = c.Client.Create(ctx, &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec,
	})
	if err != nil {
		return "", fmt.Errorf("creating the WebhookIntegration %s: %w", name, err)
	}
	for _, m := range c.managers {
		if err := m.waitKnown(ctx, token); err != nil {
			return "", err
		}
	}
	return token, nil
}

// Kubectl runs kubectl and returns what it prints.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, filepath.Join(Assets(), "kubectl"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %v: %w: %s", args, err, output)
	}
	return string(output), nil
}

// BuildManager builds the manager binary at a path; flags are more ones of "go build".
func BuildManager(ctx context.Context, path string, flags ...string) error {
	return build(ctx, path, ".", flags...)
}

// BuildPlugin builds the kubectl plugin at a path.
func BuildPlugin(ctx context.Context, path string) error {
	return build(ctx, path, "./cmd/kubectl-tocsin")
}

// build builds a program of the project, source, at a path.
func build(ctx context.Context, path, source string, flags ...string) error {
	command := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", path}, flags...), source)...)
	command.Dir = Root()
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", source, err, output)
	}
	return nil
}
