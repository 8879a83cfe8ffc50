// Package testenv gives the test suites a real etcd and kube-apiserver with Tocsin's CRDs installed.
package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

// assetsVariable is envtest's name for the folder of etcd, kube-apiserver and kubectl.
const assetsVariable = "KUBEBUILDER_ASSETS"

// Root is the folder that the project lies in.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// SkipOrFail ends a test for want of what it needs: in continuous integration, where CI is set, that is a failure.
func SkipOrFail(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// Assets is the folder of etcd, kube-apiserver and kubectl: KUBEBUILDER_ASSETS, or else the one that
// "make control-plane" fills.
func Assets() string {
	if dir := os.Getenv(assetsVariable); dir != "" {
		return dir
	}
	return filepath.Join(Root(), "bin", "control-plane")
}

// Environment is a control plane, not yet started, that gets the CRDs of config/crd.
func Environment() *envtest.Environment {
	return &envtest.Environment{
		BinaryAssetsDirectory: Assets(),
		CRDDirectoryPaths:     []string{filepath.Join(Root(), "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
}

// Scheme knows the standard resources and Tocsin's.
func Scheme() *k8sruntime.Scheme {
	scheme := k8sruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		panic(fmt.Sprintf("building the scheme: %v", err))
	}
	return scheme
}

// Main starts a control plane, hands its administrator's configuration to set, runs the tests and stops
// the control plane. It returns the exit code for os.Exit.
func Main(m *testing.M, set func(*rest.Config)) int {
	environment := Environment()
	config, err := environment.Start()
	if err != nil {
		fmt.Fprintf(os.Stderr, "starting the control plane (\"make control-plane\" gets one): %v\n", err)
		return 1
	}
	defer func() {
		if err := environment.Stop(); err != nil {
			fmt.Fprintf(os.Stderr, "stopping the control plane: %v\n", err)
		}
	}()
	config.QPS = -1
	set(config)
	return m.Run()
}

// TestManager runs a manager for a test, by default one that it builds, and waits until it is ready.
func TestManager(t *testing.T, options ManagerOptions) *Manager {
	t.Helper()
	folder := t.TempDir()
	var err error
	if options.Binary == "" {
		options.Binary = filepath.Join(folder, "manager")
		err = BuildManager(t.Context(), options.Binary)
	}
	if options.Log == nil && err == nil {
		options.Log, err = os.Create(filepath.Join(folder, "log"))
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := RunManager(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Kill)
	return m
}

// Token returns the token of an integration that tests and suites make, the same at every call. It has the form of one that
// a shell made.
func Token(namespace, integration string) string {
	return tokens.Prefix + tokens.Tag(namespace, integration) + "_" + tokens.Hash(namespace+integration)
}

// Tokens returns the spec.tokens of an integration with its Token.
func Tokens(namespace, integration string) []v1alpha1.Token {
	return []v1alpha1.Token{{Name: "test", SHA256: tokens.Hash(Token(namespace, integration))}}
}

// Namespace makes a namespace for one test and returns its name. Nothing deletes it: there is no
// controller-manager that could.
func Namespace(tb testing.TB, c client.Client) string {
	tb.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := c.Create(context.Background(), namespace); err != nil {
		tb.Fatalf("creating a namespace: %v", err)
	}
	return namespace.Name
}
