// Package plugin tests the kubectl plugin from outside: in scripts, in a terminal and through a pod.
package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/cli"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	awaitTimeout = 30 * time.Second
	awaitPoll    = 100 * time.Millisecond

	// completer is the name under which kubectl runs the plugin to complete a command line.
	completer = "kubectl_complete-tocsin"
	// webhookPath is where the manager takes alerts, followed by a slash and the token.
	webhookPath = "/api/v1/events/webhook"
)

var (
	config  *rest.Config
	manager *testenv.Manager
	proxy   string // the address of one that lets no WebSockets pass
)

// TestMain lets the test binary be the plugin, for the scripts, or else runs the tests beside a control plane
// and a manager.
func TestMain(m *testing.M) {
	be := func() { os.Exit(cli.Main(os.Args, os.Stdin, os.Stdout, os.Stderr)) }
	testscript.Main(withCluster{m}, map[string]func(){"kubectl-tocsin": be, completer: be})
}

type withCluster struct{ *testing.M }

// Run implements testscript.TestingM.
func (m withCluster) Run() int {
	log.SetLogger(logr.Discard())
	return testenv.Main(m.M, func(c *rest.Config) { config = c })
}

// TestScripts runs the scripts in testdata/script: each has a namespace of its own, and a manager serves all.
func TestScripts(t *testing.T) {
	manager = startManager(t)
	startNode(t, strings.TrimPrefix(endpoint(manager), "http://"))
	proxy = startProxy(t).URL
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		Setup:               setup,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"await":   await,
			"setfrom": setFrom,

			"sameanswer": sameAnswer,
		},
	})
}

func startManager(t *testing.T) *testenv.Manager {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := writeKubeconfig(kubeconfig, "default"); err != nil {
		t.Fatal(err)
	}
	return testenv.TestManager(t, testenv.ManagerOptions{Kubeconfig: kubeconfig})
}

// endpoint is where a manager takes alerts, without a path.
func endpoint(m *testenv.Manager) string { return strings.TrimSuffix(m.WebhookURL, webhookPath+"/") }

// setup gives a script a namespace and a kubeconfig.
func setup(env *testscript.Env) error {
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := c.Create(context.Background(), namespace); err != nil {
		return err
	}
	kubeconfig := filepath.Join(env.WorkDir, "kubeconfig")
	env.Setenv("KUBECONFIG", kubeconfig)
	env.Setenv("NAMESPACE", namespace.Name)
	env.Setenv("TOCSIN_ENDPOINT", endpoint(manager))
	env.Setenv("PROXY", proxy)
	env.Setenv("TZ", "UTC")
	env.Setenv("HOME", env.WorkDir)
	env.Setenv("PATH", env.Getenv("PATH")+string(os.PathListSeparator)+testenv.Assets())
	policy, err := policyFor(namespace.Name)
	return errors.Join(err, writeKubeconfig(kubeconfig, namespace.Name),
		os.WriteFile(filepath.Join(env.WorkDir, "policy.yaml"), []byte(policy), 0o600))
}

// policyFor is the component admission-policy, for one namespace: other scripts run meanwhile.
func policyFor(namespace string) (string, error) {
	text := ""
	for _, file := range []string{"policy.yaml", "binding.yaml"} {
		part, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "components", "admission-policy", file))
		if err != nil {
			return "", err
		}
		text += "---\n" + string(part)
	}
	return text + "  matchResources:\n    namespaceSelector:\n      matchLabels: {kubernetes.io/metadata.name: " + namespace + "}\n", nil
}

func writeKubeconfig(path, namespace string) error {
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["test"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	kubeconfig.AuthInfos["test"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
	}
	kubeconfig.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test", Namespace: namespace}
	kubeconfig.CurrentContext = "test"
	return clientcmd.WriteToFile(*kubeconfig, path)
}

// await PATTERN PROGRAM ARGS... runs a program until what it prints matches the pattern; "! await" until it
// does not.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: await pattern program [args...]")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	ticker := time.NewTicker(awaitPoll)
	defer ticker.Stop()
	for deadline := time.Now().Add(awaitTimeout); ; {
		err := ts.Exec(args[1], args[2:]...)
		output := ts.ReadFile("stdout") + ts.ReadFile("stderr")
		if pattern.MatchString(output) != neg {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("timed out (%v):\n%s", err, output)
		}
		<-ticker.C
	}
}

// setFrom NAME PATTERN sets an environment variable to what the first group of the pattern matches in the
// last output.
func setFrom(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: setfrom name pattern")
	}
	pattern, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	output := ts.ReadFile("stdout")
	match := pattern.FindStringSubmatch(output)
	if len(match) < 2 {
		ts.Fatalf("%s", fmt.Sprintf("no match for %q in:\n%s", args[1], output))
	}
	ts.Setenv(args[0], match[1])
}

// sameAnswer FILE FILE compares two answers to a dry run, but for the ids, which are new every time, and for
// the incidents, which "explain" adds.
func sameAnswer(ts *testscript.TestScript, _ bool, args []string) {
	var answers [2]map[string]any
	for i, name := range args {
		ts.Check(json.Unmarshal([]byte(ts.ReadFile(name)), &answers[i]))
		delete(answers[i], "incidents")
		alerts, _ := answers[i]["alerts"].([]any)
		if len(alerts) == 0 {
			ts.Fatalf("%s has no alerts", name)
		}
		for _, one := range alerts {
			alert, _ := one.(map[string]any)
			delete(alert, "id")
			content, _ := alert["alert"].(map[string]any)
			delete(content, "id")
		}
	}
	if !reflect.DeepEqual(answers[0], answers[1]) {
		ts.Fatalf("they differ:\n%v\n%v", answers[0], answers[1])
	}
}
