// Package newcomer runs a newcomer's path against an empty control plane: newcomer.sh installs Tocsin, handles
// an incident with the kubectl plugin and uninstalls it, and nothing is left behind.
package newcomer

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	partTimeout  = 2 * time.Minute
	sweepTimeout = time.Minute
	sweepPeriod  = 200 * time.Millisecond
)

// notHere are the commands that need nodes, which a bare control plane lacks; the manager runs beside it.
var notHere = regexp.MustCompile(`(?m)^.*(--for=condition=Available|port-forward).*\n`)

// newcomer is the one who takes the path.
type newcomer struct {
	kubeconfig string
	folder     string // of the programs
	clientset  *kubernetes.Clientset
	metadata   metadata.Interface
	discovery  discovery.DiscoveryInterface
}

func TestNewcomer(t *testing.T) {
	g := NewWithT(t)
	n := arrive(t)
	before := n.everything(t)

	script, err := os.ReadFile("newcomer.sh")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(notHere.FindAllString(string(script), -1)).To(HaveLen(2))
	path := notHere.ReplaceAllString(string(script), "")
	install, path, found := strings.Cut(path, "### Let a sender in.")
	g.Expect(found).To(BeTrue())
	use, uninstall, found := strings.Cut(path, "### Uninstall.")
	g.Expect(found).To(BeTrue())

	n.run(t, install)
	g.Expect(n.everything(t)).NotTo(Equal(before))
	manager := n.startManager(t)
	output := n.run(t, strings.Replace(use, "http://127.0.0.1:8080", strings.TrimSuffix(manager.WebhookURL, "/api/v1/events/webhook/"), 1))
	g.Expect(output).To(MatchRegexp(`1 incident is open:\nshop/monitoring-\w{26} critical Disk 97 % full`))
	g.Expect(output).To(MatchRegexp(`incident.tocsin.dev/monitoring-\w{26} acknowledged\nincident.tocsin.dev/monitoring-\w{26} resolved\n`))
	g.Expect(output).To(ContainSubstring("No incident is open."))
	g.Expect(output).To(ContainSubstring(`Revoked token "first" of integration "monitoring".`))
	g.Expect(output).To(ContainSubstring("rejected with 401"))
	g.Expect(manager.Stop()).To(Succeed())

	ctx, cancel := context.WithCancel(t.Context())
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		n.sweep(ctx)
	}()
	n.run(t, uninstall)
	g.Eventually(n.everything).WithArguments(t).WithTimeout(sweepTimeout).Should(Equal(before), "nothing is left behind")
	cancel()
	<-swept
}

// arrive starts an empty control plane and builds the programs.
func arrive(t *testing.T) *newcomer {
	t.Helper()
	g := NewWithT(t)
	n := &newcomer{folder: t.TempDir()}
	cluster, err := testenv.StartEmptyCluster(n.folder)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(cluster.Stop)
	config := cluster.Config
	n.kubeconfig = cluster.Kubeconfig
	n.clientset, err = kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	n.metadata, err = metadata.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	n.discovery = n.clientset.Discovery()
	g.Expect(testenv.BuildManager(t.Context(), filepath.Join(n.folder, "manager"))).To(Succeed())
	g.Expect(testenv.BuildPlugin(t.Context(), filepath.Join(n.folder, "kubectl-tocsin"))).To(Succeed())
	return n
}

// run runs a part of the script in the project's folder and returns what it prints.
func (n *newcomer) run(t *testing.T, part string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), partTimeout)
	defer cancel()
	// What the script writes goes where it leaves no trace.
	part = strings.NewReplacer(">watched", ">"+n.folder+"/watched", " watched;", " "+n.folder+"/watched;",
		"rm watched", "rm "+n.folder+"/watched").Replace(part)
	command := exec.CommandContext(ctx, "bash", "-c", "set -euo pipefail\n"+part)
	command.Dir = testenv.Root()
	command.Env = append(os.Environ(), "KUBECONFIG="+n.kubeconfig, "PATH="+n.folder+":"+testenv.Assets()+":"+os.Getenv("PATH"))
	output, err := command.CombinedOutput()
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), string(output))
	return string(output)
}

// startManager starts the manager as the service account of the Deployment.
func (n *newcomer) startManager(t *testing.T) *testenv.Manager {
	t.Helper()
	g := NewWithT(t)
	token, err := n.clientset.CoreV1().ServiceAccounts("tocsin-system").
		CreateToken(t.Context(), "tocsin", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	kubeconfig, err := clientcmd.LoadFromFile(n.kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	for _, user := range kubeconfig.AuthInfos {
		user.ClientCertificateData, user.ClientKeyData, user.Token = nil, nil, token.Status.Token
	}
	path := filepath.Join(n.folder, "manager-kubeconfig")
	g.Expect(clientcmd.WriteToFile(*kubeconfig, path)).To(Succeed())
	return testenv.TestManager(t, testenv.ManagerOptions{
		Binary: filepath.Join(n.folder, "manager"), Kubeconfig: path,
		Args: []string{"--leader-elect", "--leader-election-namespace=tocsin-system", "--shutdown-delay=0s"},
	})
}

// sweep does what the namespace controller does, which a bare control plane lacks: it empties namespaces that are
// being deleted and lets go of them.
func (n *newcomer) sweep(ctx context.Context) {
	ticker := time.NewTicker(sweepPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		namespaces, err := n.clientset.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for i := range namespaces.Items {
			if !namespaces.Items[i].DeletionTimestamp.IsZero() {
				n.empty(ctx, &namespaces.Items[i])
			}
		}
	}
}

// empty deletes what is in a namespace and, when nothing is left, the namespace. What fails is done the next time.
func (n *newcomer) empty(ctx context.Context, namespace *corev1.Namespace) {
	left := 0
	for _, resource := range n.resources(true) {
		objects, err := n.metadata.Resource(resource).Namespace(namespace.Name).List(ctx, metav1.ListOptions{})
		if err != nil {
			continue // it is being deleted itself
		}
		for i := range objects.Items {
			left++
			_ = n.metadata.Resource(resource).Namespace(namespace.Name).Delete(ctx, objects.Items[i].Name, metav1.DeleteOptions{})
		}
	}
	if left == 0 {
		namespace.Spec.Finalizers = nil
		_, _ = n.clientset.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
	}
}

// resources are all that can be listed and deleted.
func (n *newcomer) resources(namespacedOnly bool) []schema.GroupVersionResource {
	lists, _ := n.discovery.ServerPreferredResources() // what it cannot tell is being deleted
	var found []schema.GroupVersionResource
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for i := range list.APIResources {
			resource := &list.APIResources[i]
			if slices.Contains(resource.Verbs, "list") && slices.Contains(resource.Verbs, "delete") && (resource.Namespaced || !namespacedOnly) {
				found = append(found, version.WithResource(resource.Name))
			}
		}
	}
	return found
}

// everything are the names of all objects of the cluster.
func (n *newcomer) everything(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, resource := range n.resources(false) {
		objects, err := n.metadata.Resource(resource).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			names = append(names, resource.String()+": "+err.Error())
			continue
		}
		for i := range objects.Items {
			names = append(names, strings.Join([]string{resource.GroupResource().String(), objects.Items[i].Namespace, objects.Items[i].Name}, "/"))
		}
	}
	slices.Sort(names)
	return names
}
