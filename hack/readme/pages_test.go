package readme

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tocsin-dev/tocsin/hack/testenv"
)

// pages are those whose commands are run, in this order, on one cluster: the first installs Tocsin into it and
// the last removes it.
var pages = []string{
	"docs/install.md",
	"docs/components.md",
	"docs/upgrade.md",
	"docs/runbooks/*.md",
	"docs/uninstall.md",
}

// needNodes are the commands that need running pods, or the metrics of nodes, which a bare control plane lacks.
var needNodes = regexp.MustCompile(`(?m)^kubectl .*( logs | port-forward | rollout status | top |--for=condition=Available).*\n`)

// kustomizationBlock is an example of a kustomization.
var kustomizationBlock = regexp.MustCompile("(?s)```yaml\n(# kustomization.yaml\n.*?)```")

func TestPages(t *testing.T) {
	kubeconfig := startControlPlane(t)
	endNamespaces(t, kubeconfig)
	// A folder with the project in it, for what the commands write.
	folder := t.TempDir()
	for _, name := range []string{"config", "dist"} {
		NewWithT(t).Expect(os.Symlink(filepath.Join(testenv.Root(), name), filepath.Join(folder, name))).To(Succeed())
	}
	for _, pattern := range pages {
		files, err := filepath.Glob(filepath.Join(testenv.Root(), pattern))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(files).NotTo(BeEmpty(), pattern)
		if pattern == "docs/upgrade.md" { // the CRDs are there, and what follows looks at the lease
			startManager(t, kubeconfig, "--leader-elect", "--leader-election-namespace=tocsin-system")
		}
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) { runPage(t, kubeconfig, folder, file) })
		}
	}
	left := runIn(t, kubeconfig, folder, "kubectl get all,crd,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,namespaces,configmaps -A "+
		"-l app.kubernetes.io/part-of=tocsin -o name")
	NewWithT(t).Expect(left).To(BeEmpty())
}

// runPage runs the blocks of commands of a page, each as a script, and builds its kustomizations.
func runPage(t *testing.T, kubeconfig, folder, file string) {
	t.Helper()
	g := NewWithT(t)
	page, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	for _, block := range shellBlock.FindAllStringSubmatch(string(page), -1) {
		runIn(t, kubeconfig, folder, "set -euo pipefail\n"+needNodes.ReplaceAllString(block[1], ""))
	}
	for i, block := range kustomizationBlock.FindAllStringSubmatch(string(page), -1) {
		example := filepath.Join(folder, fmt.Sprintf("example-%d", i))
		g.Expect(os.MkdirAll(example, 0o700)).To(Succeed())
		config, err := filepath.Rel(example, filepath.Join(testenv.Root(), "config"))
		g.Expect(err).NotTo(HaveOccurred())
		text := strings.NewReplacer("https://github.com/tocsin-dev/tocsin//config", config, "?ref=main", "").Replace(block[1])
		g.Expect(os.WriteFile(filepath.Join(example, "kustomization.yaml"), []byte(text), 0o600)).To(Succeed())
		output := runIn(t, kubeconfig, folder, "kubectl kustomize "+example)
		g.Expect(output).To(ContainSubstring("kind: Deployment"))
	}
}

// runIn runs a script in the folder and returns what it prints.
func runIn(t *testing.T, kubeconfig, folder, script string) string {
	t.Helper()
	return run(t, kubeconfig, "cd "+folder+"\n"+script)
}

// endNamespaces does for namespaces that are deleted what a controller does in a cluster. The commands delete what
// is in them by themselves.
func endNamespaces(t *testing.T, kubeconfig string) {
	t.Helper()
	g := NewWithT(t)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	clients, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	watcher, err := clients.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range watcher.ResultChan() {
			namespace, ok := event.Object.(*corev1.Namespace)
			if !ok || event.Type == watch.Deleted || namespace.DeletionTimestamp == nil {
				continue
			}
			namespace.Spec.Finalizers = nil
			// A conflict comes with another event; what else fails, the command shows that waits for it.
			_, _ = clients.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
		}
	}()
	t.Cleanup(func() { cancel(); watcher.Stop(); <-ended })
}
