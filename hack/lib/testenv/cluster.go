package testenv

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Cluster is a control plane for a manager binary to work on.
type Cluster struct {
	*ControlPlane
	// Config and Client are the administrator's.
	Config *rest.Config
	Client client.Client
	// Kubeconfig is the path of a configuration for managers and kubectl.
	Kubeconfig string

	managers []*Manager
}

// StartCluster starts a control plane with the CRDs; its kubeconfig, data and logs go into the folder.
func StartCluster(folder string) (*Cluster, error) {
	return StartClusterOf(context.Background(), ControlPlaneOptions{Folder: folder})
}

// StartClusterOf starts a control plane with the CRDs as the options describe it.
func StartClusterOf(ctx context.Context, options ControlPlaneOptions) (*Cluster, error) {
	return startCluster(ctx, options, Environment().CRDDirectoryPaths...)
}

// StartEmptyCluster starts one without the CRDs.
func StartEmptyCluster(folder string) (*Cluster, error) {
	return startCluster(context.Background(), ControlPlaneOptions{Folder: folder})
}

func startCluster(ctx context.Context, options ControlPlaneOptions, crds ...string) (c *Cluster, err error) {
	c = &Cluster{Kubeconfig: filepath.Join(options.Folder, "kubeconfig")}
	if c.ControlPlane, err = StartControlPlane(ctx, options); err != nil {
		return c, fmt.Errorf("starting the control plane (\"make control-plane\" gets one): %w", err)
	}
	if err = c.connect(ctx); err == nil {
		_, err = envtest.InstallCRDs(c.Config, envtest.CRDInstallOptions{Paths: crds, ErrorIfPathMissing: true})
	}
	if err != nil {
		c.Stop()
	}
	return c, err
}

// connect makes the client and the kubeconfig of the administrator, and waits for the default namespace. It authenticates by a
// token, as pods do: to verify client certificates would cost the API server a twentieth of its time.
func (c *Cluster) connect(ctx context.Context) error {
	ca, err := os.ReadFile(filepath.Join(c.folder, "apiserver-0", "apiserver.crt")) // that signed itself
	if err != nil {
		return err
	}
	c.Config = &rest.Config{Host: c.URLs[0], BearerToken: c.Token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}, QPS: -1}
	const name = "test"
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: c.URLs[0], CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: c.Token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, c.Kubeconfig)
	if err != nil {
		return err
	}
	if c.Client, err = client.New(c.Config, client.Options{Scheme: Scheme()}); err != nil {
		return err
	}
	return Await(ctx, managerTimeout, func(ctx context.Context) error {
		return c.Client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceDefault}, &corev1.Namespace{})
	})
}

// RunManager runs a manager on the cluster, by default with its Kubeconfig, and waits until it is ready. Stop kills it.
func (c *Cluster) RunManager(ctx context.Context, options ManagerOptions) (*Manager, error) {
	options.Kubeconfig = cmp.Or(options.Kubeconfig, c.Kubeconfig)
	m, err := RunManager(ctx, options)
	if err == nil {
		c.managers = append(c.managers, m)
	}
	return m, err
}

// Stop kills the managers and ends the control plane.
func (c *Cluster) Stop() {
	for _, m := range c.managers {
		m.Kill()
	}
	c.ControlPlane.Stop()
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
		if err := m.WaitKnown(ctx, token); err != nil {
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
	return Go(ctx, append(append([]string{"build", "-o", path}, flags...), ".")...)
}

// BuildPlugin builds the kubectl plugin at a path.
func BuildPlugin(ctx context.Context, path string) error {
	return Go(ctx, "build", "-o", path, "./cmd/kubectl-tocsin")
}

// Go runs the go command in the folder of the project.
func Go(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = Root()
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w: %s", args, err, output)
	}
	return nil
}
