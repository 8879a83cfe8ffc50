package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

var config *rest.Config

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, func(c *rest.Config) { config = c })) }

func TestCommandLine(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "ca.crt")
	NewWithT(t).Expect(os.WriteFile(garbage, []byte("garbage"), 0o600)).To(Succeed())
	testenv.TestCommandLines(t, execute, map[string]testenv.CommandLine{
		"help lists the flags":                  {Args: "--help", Stdout: "-cluster-name"},
		"the version is printed":                {Args: "--version", Stdout: "tocsin-page"},
		"the address must be one":               {Args: "--bind-address=x", Code: 2, Stderr: "--bind-address"},
		"the server must be a URL":              {Args: "--server=x", Code: 2, Stderr: "--server"},
		"the server has no user":                {Args: "--server=https://me:secret@10.0.0.1", Code: 2, Stderr: "--server"},
		"the authority must be there":           {Args: "--certificate-authority=/none", Code: 2, Stderr: "--certificate-authority"},
		"the authority must be a certificate":   {Args: "--certificate-authority=" + garbage, Code: 2, Stderr: "--certificate-authority"},
		"all errors are told":                   {Args: "--bind-address=x --server=x", Code: 2, Stderr: "--server"},
		"a flag of the plugin is none":          {Args: "--in-cluster", Code: 2, Stderr: "flag provided but not defined"},
		"an address that cannot be listened on": {Args: "--bind-address=192.0.2.1:1", Code: 1, Stderr: "listening"},
	})
	NewWithT(t).Expect(helpOf(t)).NotTo(ContainSubstring("KUBECONFIG"))
}

func helpOf(t *testing.T) string {
	t.Helper()
	var stdout bytes.Buffer
	NewWithT(t).Expect(execute([]string{"--help"}, &stdout, io.Discard)).To(BeZero())
	return stdout.String()
}

// TestAUserOfTheCluster asks the page with the token of a service account, which the API server verifies.
func TestAUserOfTheCluster(t *testing.T) {
	g := NewWithT(t)
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	namespace := testenv.Namespace(t, c)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "maria"}}
	g.Expect(c.Create(t.Context(), account)).To(Succeed())
	token := &authenticationv1.TokenRequest{}
	g.Expect(c.SubResource("token").Create(t.Context(), account, token)).To(Succeed())

	addresses, err := testenv.FreeAddresses(1)
	g.Expect(err).NotTo(HaveOccurred())
	address := addresses[0]
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	server := command{address: address, clusterName: "prod-1"}
	go func() { ended <- server.run(ctx, rest.AnonymousClientConfig(config), logr.Discard()) }()
	get := func(path, token string) (code int, body string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		g.Expect(err).NotTo(HaveOccurred())
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("X-Tocsin-Page", "1")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		g.Expect(err).NotTo(HaveOccurred())
		return response.StatusCode, string(text)
	}
	g.Eventually(func() int { code, _ := get("/", ""); return code }, "10s", "10ms").Should(Equal(http.StatusOK))
	code, body := get("/api/incidents?scope="+namespace, token.Status.Token)
	g.Expect(code).To(Equal(http.StatusForbidden))
	g.Expect(body).To(ContainSubstring("system:serviceaccount:" + namespace + ":maria"))
	code, _ = get("/api/incidents", "garbage")
	g.Expect(code).To(Equal(http.StatusUnauthorized))
	stop()
	g.Eventually(ended, 10*time.Second).Should(Receive(BeNil()))
}

// TestThePageHasNoLibraryOfACloud keeps them out of the program that strangers reach: it reads no archive.
func TestThePageHasNoLibraryOfACloud(t *testing.T) {
	g := NewWithT(t)
	packages, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(packages)).To(And(ContainSubstring("/internal/page\n"), Not(MatchRegexp(
		`cloud\.google\.com/|aws-sdk-go|Azure/azure-sdk|tocsin/(cmd/kubectl-tocsin|webhookserver(\n|/(capture|commit|protocol)\n)|internal/bucket)`))))
}
