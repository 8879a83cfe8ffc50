//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	certificateComponent = "tls-cert-manager"
	namespaceComponent   = "single-namespace"
)

// components are the folders of config/components that are added to config/default, each behind those that it does
// nothing without.
func components(t *testing.T) [][]string {
	t.Helper()
	g := NewWithT(t)
	files, err := filepath.Glob(filepath.Join(testenv.Root(), "config", "components", "*", "kustomization.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).NotTo(BeEmpty())
	var lists [][]string
	for _, file := range files {
		switch name := filepath.Base(filepath.Dir(file)); name {
		case namespaceComponent: // a step of its own
		case "envoy-gateway":
			lists = append(lists, []string{"gateway", name})
		default:
			lists = append(lists, []string{name})
		}
	}
	return lists
}

// testComponents applies each component together with config/default, and alerts still get through.
func (s *suite) testComponents(t *testing.T) {
	namespace := s.namespace(t, "e2e-components")
	s.certificate(t)
	for _, list := range components(t) {
		component := list[len(list)-1]
		t.Run(component, func(t *testing.T) {
			s.applyComponents(t, list...)
			s.integration(t, namespace, component)
			if component == certificateComponent {
				s.checkHTTPS(t, namespace, component)
				return
			}
			load := s.load(namespace, component)
			load.Requests = 20
			account := loadgen.Run(t.Context(), load)
			NewWithT(t).Expect(account.Codes).To(Equal(map[string]int{"202": 20}))
			s.check(t, namespace, component, account)
		})
	}
	s.install(t)
}

// applyComponents applies the components while the step runs, and waits for the pods.
func (s *suite) applyComponents(t *testing.T, names ...string) {
	t.Helper()
	overlay := s.overlay(t, s.image, names...)
	output, err := s.tryKubectl(t.Context(), "apply", "--server-side", "--validate=strict", "--dry-run=server", "-k", overlay)
	if err != nil && strings.Contains(output, "ensure CRDs are installed first") {
		s.leaveOut(t, "the cluster lacks CustomResourceDefinitions that the component needs")
	}
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { s.removeAdded(t, overlay) })
	s.kubectl(t, "apply", "--server-side", "--validate=strict", "-k", overlay)
	g.Expect(s.settled(t.Context(), 2)).To(Succeed())
}

// certificate makes the Secret that cert-manager makes where it runs.
func (s *suite) certificate(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	var managers appsv1.DeploymentList
	g.Expect(s.List(t.Context(), &managers, client.MatchingLabels{"app.kubernetes.io/name": "cert-manager"})).To(Succeed())
	if len(managers.Items) > 0 {
		return
	}
	var names []string
	for _, service := range []string{"tocsin-webhook", "tocsin-metrics"} {
		names = append(names, service+"."+systemNamespace+".svc")
	}
	certificate, key, err := certutil.GenerateSelfSignedCertKey(names[0], nil, names)
	g.Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "tocsin-tls"},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	}
	g.Expect(s.Create(t.Context(), secret)).To(Succeed())
	t.Cleanup(func() { g.Expect(s.Delete(context.Background(), secret)).To(Succeed()) })
}

// checkHTTPS posts an alert and asks for the metrics as clients that believe the certificate in the Secret only.
func (s *suite) checkHTTPS(t *testing.T, namespace, integration string) {
	t.Helper()
	g := NewWithT(t)
	var secret corev1.Secret
	g.Expect(s.Get(t.Context(), client.ObjectKey{Namespace: systemNamespace, Name: "tocsin-tls"}, &secret)).To(Succeed())
	authorities := x509.NewCertPool()
	g.Expect(authorities.AppendCertsFromPEM(secret.Data[corev1.TLSCertKey])).To(BeTrue())
	believer := func(service string) *http.Client {
		transport := &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: authorities, ServerName: service + "." + systemNamespace + ".svc", MinVersion: tls.VersionTLS12,
		}}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	url := strings.Replace(s.url, "http://", "https://", 1)
	code := post(t, believer("tocsin-webhook"), url, testenv.Token(namespace, integration), `{"dedup_key":"secure"}`)
	g.Expect(code).To(Equal(http.StatusAccepted))
	incident := "incident/" + v1alpha1.IncidentName(integration, "secure")
	s.kubectl(t, "-n", namespace, "wait", "--for=create", incident, "--timeout=30s")

	response, err := believer("tocsin-metrics").Get("https://" + s.forward(t, "service/tocsin-metrics", "8443") + "/metrics")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.Body.Close()).To(Succeed())
	g.Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
}

// testSingleNamespace installs Tocsin, on a cluster without it, as somebody who has no rights but those of a
// namespace's owner. It serves that namespace and no other.
func (s *suite) testSingleNamespace(t *testing.T) {
	g := NewWithT(t)
	s.kubectl(t, "apply", "--server-side", "-k", "config/crd")
	t.Cleanup(func() { s.remove(t, "-k", "config/crd") })
	s.namespace(t, systemNamespace)
	t.Cleanup(func() { s.remove(t, "namespace", systemNamespace) }) // and waits until it is gone
	g.Expect(s.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "owner"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: systemNamespace, Name: "owner"}},
	})).To(Succeed())
	owner := "--as=system:serviceaccount:" + systemNamespace + ":owner"
	output, err := s.tryKubectl(t.Context(), "apply", "--server-side", "--dry-run=server", owner, "-k", s.overlay(t, s.image))
	g.Expect(err).To(HaveOccurred(), "config/default is the whole cluster's")
	g.Expect(output).To(ContainSubstring("at the cluster scope"))

	start := time.Now()
	s.kubectl(t, "apply", "--server-side", "--validate=strict", owner, "-k", s.overlay(t, s.image, namespaceComponent))
	g.Expect(s.settled(t.Context(), 2)).To(Succeed())
	s.expose(t)
	s.integration(t, systemNamespace, "load")
	load := s.load(systemNamespace, "load")
	load.Requests = 100
	account := loadgen.Run(t.Context(), load)
	g.Expect(account.Codes).To(Equal(map[string]int{"202": 100}))
	s.check(t, systemNamespace, "load", account)

	strangers := s.namespace(t, "e2e-strangers")
	g.Expect(s.Create(t.Context(), integrationOf(strangers, "load"))).To(Succeed())
	g.Expect(post(t, http.DefaultClient, s.url, testenv.Token(strangers, "load"), `{}`)).To(Equal(http.StatusUnauthorized))
	s.checkLogs(t, start, unwanted)
}

// removeAdded deletes what an overlay has and config/default has not.
func (s *suite) removeAdded(t *testing.T, overlay string) {
	t.Helper()
	standard := s.objects(t, "config/default")
	for name, document := range s.objects(t, overlay) {
		if _, ok := standard[name]; !ok {
			path := filepath.Join(t.TempDir(), "object.yaml")
			NewWithT(t).Expect(os.WriteFile(path, document, 0o600)).To(Succeed())
			s.remove(t, "-f", path)
		}
	}
}

// objects are the documents that a kustomization makes, by kind, namespace and name.
func (s *suite) objects(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	g := NewWithT(t)
	rendered, err := s.tryKubectl(context.Background(), "kustomize", folder)
	g.Expect(err).NotTo(HaveOccurred())
	documents := map[string][]byte{}
	for document := range strings.SplitSeq(rendered, "\n---\n") {
		var object metav1.PartialObjectMetadata
		g.Expect(yaml.Unmarshal([]byte(document), &object)).To(Succeed())
		documents[object.Kind+" "+object.Namespace+"/"+object.Name] = []byte(document)
	}
	return documents
}
