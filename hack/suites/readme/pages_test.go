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

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// pages are those whose commands are run, in this order, on one cluster, into which docs/getting-started.md has installed Tocsin:
// the last but one removes it, and the last does both.
var pages = []string{
	"docs/install.md",
	"docs/components.md",
	"docs/kube-state-metrics.md",
	"docs/upgrade.md",
	"docs/gate.md",
	"docs/heartbeats.md",
	"docs/runbooks/*.md",
	"docs/tracing.md",
	"docs/troubleshooting.md",
	"docs/security.md",
	"docs/senders/README.md",
	"docs/spec/v1alpha1/*.md",
	"docs/uninstall.md",
	"docs/helm.md",
}

// needNodes are the commands that need running pods, or the metrics of nodes, which a bare control plane lacks.
var needNodes = regexp.MustCompile(`(?m)^kubectl .*( logs | port-forward | rollout status | top |--for=condition=Available).*\n`)

// installCommand is the first command of the walkthrough.
var installCommand = regexp.MustCompile(`(?m)^kubectl apply .* -k config/default\n`)

// kustomizationBlock is an example of a kustomization.
var kustomizationBlock = regexp.MustCompile("(?s)```yaml\n(# kustomization.yaml\n.*?)```")

// makeSender makes what the pages take for given: a sender with its token in a file, and an Incident of it.
const makeSender = `set -euo pipefail
echo "tocsin_$(printf shop/monitoring | openssl dgst -sha256 -r | cut -c-32)_$(openssl rand -hex 32)" >token.txt
kubectl create namespace shop
kubectl apply -f - <<EOF
{apiVersion: tocsin.dev/v1alpha1, kind: WebhookIntegration, metadata: {namespace: shop, name: monitoring},
 spec: {tokens: [{name: first, sha256: $(tr -d '\n' <token.txt | openssl dgst -sha256 -r | cut -d' ' -f1)}]}}
EOF
kubectl -n shop wait --for=condition=Ready webhookintegration/monitoring
`

// compressed is one alert as the operator compresses many.
const compressed = "H4sIAAAAAAACA4uuVkpJTSkt8E6tVLJSUErJLM7WT0nSNVTSUVAqLkksKS0GCadlFmXmpSvV6ihgV26EXXksAMQs18ReAAAA"

// captured is a request as the operator stores it.
const captured = "H4sIAAAAAAACA0XLsQrCMBCA4T3QdwiZ1RhwyqpDB8GC2SU2pz0TcoFcK0V8d7O5fvz/cLk6qX1BvRgNC2Su+g33iSjK3rlBm5" +
	"3pRE+VrWQaK+ZOHClzC7dnyE+erDzs/+bWAlb6UhKOnpGyflVqTyc+ipETKKtOWKN8zCmpjQoQ5nKLsDYPzdX3B3tlmjSSAAAA"

// takenForGranted makes, by page, what its commands take for granted besides: Incidents and an AlertEvent with the names
// that they have in the page.
var takenForGranted = map[string]string{
	"gate.md": "until kubectl -n shop get incidentsummary current 2>/dev/null; do sleep 0.1; done\n",
	"alertevent.md": `kubectl create -f - <<EOF
apiVersion: tocsin.dev/v1alpha1
kind: AlertEvent
metadata: {name: first}
spec: {integrationName: prometheus, alerts: '[{"status": "firing", "dedupKey": "disk/db-1", "title": "Disk almost full"}]'}
---
# The operator would soon have folded and deleted it: the finalizer keeps it.
apiVersion: tocsin.dev/v1alpha1
kind: AlertEvent
metadata: {name: second, finalizers: [test.tocsin.dev/keep]}
spec: {integrationName: prometheus, encoding: gzip, alerts: ` + compressed + `}
EOF
until kubectl get incident prometheus-htyerfqyyti4zhdcznusvhdlv5 2>/dev/null; do sleep 0.1; done
`,
	"requestcapture.md": `kubectl create -f - <<EOF
apiVersion: tocsin.dev/v1alpha1
kind: RequestCapture
metadata: {name: prometheus}
spec: {requests: [{time: "2026-05-04T10:00:00.123456Z", code: 202, content: ` + captured + `}]}
EOF
`,
	"incident.md": `kubectl patch alertevent second --type=merge -p '{"metadata":{"finalizers":null}}'
kubectl create -f - <<EOF
apiVersion: tocsin.dev/v1alpha1
kind: AlertEvent
metadata: {name: demo}
spec:
  integrationName: demo
  alerts: '[{"status": "firing", "dedupKey": "disk-full-db-1", "title": "Disk full"},
    {"status": "resolved", "dedupKey": "disk-full-db-1"}]'
EOF
until kubectl get incident demo-dcqj4fhmtusbva2hkgzu5k5lll 2>/dev/null; do sleep 0.1; done
`,
}

func TestPages(t *testing.T) {
	installPlugin(t)
	kubeconfig := startControlPlane(t)
	endNamespaces(t, kubeconfig)
	// A folder with the project in it, for what the commands write.
	folder := t.TempDir()
	for _, name := range []string{"config", "dist"} {
		NewWithT(t).Expect(os.Symlink(filepath.Join(testenv.Root(), name), filepath.Join(folder, name))).To(Succeed())
	}
	installation, err := Walkthrough()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	run(t, kubeconfig, installCommand.FindString(installation))
	url := "" // of the manager, once there is one
	for _, pattern := range pages {
		files, err := filepath.Glob(filepath.Join(testenv.Root(), pattern))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(files).NotTo(BeEmpty(), pattern)
		if pattern == "docs/upgrade.md" { // the CRDs are there, and what follows looks at the lease
			manager := testenv.TestManager(t, testenv.ManagerOptions{
				Kubeconfig: kubeconfig, Args: []string{"--leader-elect", "--leader-election-namespace=tocsin-system"},
			})
			url = manager.WebhookURL
			runIn(t, kubeconfig, folder, makeSender)
		}
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) { runPage(t, kubeconfig, folder, file, url) })
			if file == filepath.Join(testenv.Root(), gatePage) {
				t.Run("rollouts that wait", func(t *testing.T) { runGates(t, kubeconfig, folder) })
			}
			if file == filepath.Join(testenv.Root(), heartbeatsPage) {
				t.Run("jobs and their heartbeats", func(t *testing.T) { runJobs(t, kubeconfig, folder, url) })
			}
		}
	}
	left := runIn(t, kubeconfig, folder, "kubectl get all,crd,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,namespaces,configmaps -A "+
		"-l app.kubernetes.io/part-of=tocsin -o name")
	NewWithT(t).Expect(left).To(BeEmpty())
}

// installPlugin puts the kubectl plugin and Helm on the PATH.
func installPlugin(t *testing.T) {
	t.Helper()
	folder := t.TempDir()
	NewWithT(t).Expect(testenv.BuildPlugin(t.Context(), filepath.Join(folder, "kubectl-tocsin"))).To(Succeed())
	tools := filepath.Join(testenv.Root(), "bin", "tools") // "make tools" and "make test-all" build Helm there
	t.Setenv("PATH", strings.Join([]string{folder, tools, os.Getenv("PATH")}, string(os.PathListSeparator)))
}

// runPage runs the commands of a page as one script, and builds its kustomizations.
func runPage(t *testing.T, kubeconfig, folder, file, url string) {
	t.Helper()
	g := NewWithT(t)
	page, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	if filepath.Base(filepath.Dir(file)) == "v1alpha1" {
		kubeconfig = inNamespace(t, kubeconfig, "shop")
		saveManifest(t, string(page), folder)
	}
	script := "set -euo pipefail\n" + takenForGranted[filepath.Base(file)]
	for _, block := range commandBlocks(string(page)) {
		script += needNodes.ReplaceAllString(strings.Join(block.commands, "\n")+"\n", "")
	}
	runIn(t, kubeconfig, folder, strings.NewReplacer(
		"http://127.0.0.1:8080/api/v1/events/webhook/", url,
		"https://tocsin.example.com/api/v1/events/webhook/TOKEN", url+"$(cat token.txt)",
		"alertevent NAME", "alertevent second",
	).Replace(script))
	for i, block := range kustomizationBlock.FindAllStringSubmatch(string(page), -1) {
		example := filepath.Join(folder, fmt.Sprintf("example-%d", i))
		g.Expect(os.MkdirAll(example, 0o700)).To(Succeed())
		config, err := filepath.Rel(example, filepath.Join(testenv.Root(), "config"))
		g.Expect(err).NotTo(HaveOccurred())
		text := strings.NewReplacer("https://github.com/tocsin-dev/tocsin//config", config, "?ref=main", "").Replace(block[1])
		g.Expect(os.WriteFile(filepath.Join(example, "kustomization.yaml"), []byte(text), 0o600)).To(Succeed())
		output := runIn(t, kubeconfig, folder, "kubectl kustomize "+example)
		g.Expect(output).To(ContainSubstring("app.kubernetes.io/part-of: tocsin"))
	}
}

// inNamespace is a kubeconfig of the namespace.
func inNamespace(t *testing.T, kubeconfig, namespace string) string {
	t.Helper()
	g := NewWithT(t)
	config, err := clientcmd.LoadFromFile(kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	config.Contexts[config.CurrentContext].Namespace = namespace
	path := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}

// saveManifest saves the first example of a page where the page wants it saved.
func saveManifest(t *testing.T, page, folder string) {
	t.Helper()
	name := regexp.MustCompile("save the manifest as `([^`]+)`").FindStringSubmatch(page)
	if name == nil {
		return
	}
	_, manifest, _ := strings.Cut(page, "```yaml\n")
	manifest, _, _ = strings.Cut(manifest, "```")
	NewWithT(t).Expect(os.WriteFile(filepath.Join(folder, name[1]), []byte(manifest), 0o600)).To(Succeed())
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
