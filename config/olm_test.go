package config

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// permissions are those of a service account in a ClusterServiceVersion.
type permissions struct {
	ServiceAccountName string              `json:"serviceAccountName"`
	Rules              []rbacv1.PolicyRule `json:"rules"`
}

// serviceVersion is what the tests read of the ClusterServiceVersion in bundle/.
type serviceVersion struct {
	Spec struct {
		Install struct {
			Spec struct {
				ClusterPermissions []permissions `json:"clusterPermissions"`
				Permissions        []permissions `json:"permissions"`
				Deployments        []struct {
					Name string                `json:"name"`
					Spec appsv1.DeploymentSpec `json:"spec"`
				} `json:"deployments"`
			} `json:"spec"`
		} `json:"install"`
	} `json:"spec"`
}

func readServiceVersion(t *testing.T) serviceVersion {
	t.Helper()
	g := NewWithT(t)
	text, err := os.ReadFile(filepath.Join(testenv.Root(), "bundle", "manifests", "tocsin.clusterserviceversion.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	var csv serviceVersion
	g.Expect(yaml.Unmarshal(text, &csv)).To(Succeed())
	return csv
}

// spelledOut spells rules out, a line a group, resource, name and verb.
func spelledOut(rules []rbacv1.PolicyRule) (lines []string) {
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{"*"}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						lines = append(lines, strings.Join([]string{group, resource, name, verb}, "/"))
					}
				}
			}
		}
	}
	return lines
}

// TestBundlePermissions compares the bundle's rules with those of config/default, one by one.
func TestBundlePermissions(t *testing.T) {
	g := NewWithT(t)
	expected := map[string][]rbacv1.PolicyRule{} // by role
	for name, object := range kustomized(t, systemNamespace) {
		kind, name, _ := strings.Cut(name, " ")
		if strings.HasSuffix(kind, "Role") {
			var role rbacv1.ClusterRole
			g.Expect(yaml.Unmarshal([]byte(asYAML(t, object)), &role)).To(Succeed())
			expected[name] = role.Rules
		}
	}
	spec := readServiceVersion(t).Spec.Install.Spec
	g.Expect(spec.Permissions).To(HaveLen(1))
	g.Expect(spec.Permissions[0].ServiceAccountName).To(Equal("tocsin"))
	g.Expect(spelledOut(spec.Permissions[0].Rules)).To(ConsistOf(
		spelledOut(slices.Concat(expected["tocsin-manager"], expected["tocsin-leader-election"]))))
	g.Expect(spec.ClusterPermissions).To(HaveLen(1))
	g.Expect(spec.ClusterPermissions[0].ServiceAccountName).To(Equal("tocsin"))
	g.Expect(spelledOut(spec.ClusterPermissions[0].Rules)).To(ConsistOf(spelledOut(expected["tocsin-metrics-auth"])))
	for _, name := range []string{"tocsin-viewer", "tocsin-editor", "tocsin-metrics-reader"} {
		text, err := os.ReadFile(filepath.Join(testenv.Root(), "bundle", "manifests", name+".clusterrole.yaml"))
		g.Expect(err).NotTo(HaveOccurred())
		var role rbacv1.ClusterRole
		g.Expect(yaml.UnmarshalStrict(text, &role)).To(Succeed())
		g.Expect(role.Rules).To(Equal(expected[name]), name)
	}
}

// TestBundleDeployment compares the bundle's Deployment with that of config/default: it differs in the namespaces to serve
// and in the user.
func TestBundleDeployment(t *testing.T) {
	g := NewWithT(t)
	var expected appsv1.Deployment
	g.Expect(yaml.Unmarshal([]byte(asYAML(t, kustomized(t, systemNamespace)[theDeployment])), &expected)).To(Succeed())
	deployments := readServiceVersion(t).Spec.Install.Spec.Deployments
	g.Expect(deployments).To(HaveLen(1))
	pod := &expected.Spec.Template.Spec
	pod.SecurityContext.RunAsUser, pod.SecurityContext.RunAsGroup = nil, nil
	container := &pod.Containers[0]
	container.Args = append(container.Args, "--watch-namespaces=$(WATCH_NAMESPACE)")
	container.Env = append(container.Env, corev1.EnvVar{Name: "WATCH_NAMESPACE", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['olm.targetNamespaces']"},
	}})
	g.Expect(deployments[0].Name).To(Equal(expected.Name))
	g.Expect(deployments[0].Spec).To(Equal(expected.Spec))
	dockerfile, err := os.ReadFile(filepath.Join(testenv.Root(), "Dockerfile"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(dockerfile)).To(MatchRegexp(`\nUSER [1-9]\d*:`), "runAsNonRoot needs a number where nothing assigns a user")
}

// testInstallModes runs the manager with what OLM gives it in the mode MultiNamespace: the rules of permissions in each
// namespace to serve and in its own, and the namespaces in the argument. OwnNamespace and SingleNamespace are the same with
// one namespace; the argument of AllNamespaces is the one of testManager.
func (c *cluster) testInstallModes(t *testing.T) {
	g := NewWithT(t)
	const own, unserved = "olm-operators", "olm-other"
	targets := []string{"olm-a", "olm-b"}
	spec := readServiceVersion(t).Spec.Install.Spec
	for _, namespace := range append(slices.Clone(targets), own, unserved) {
		c.kubectl(t, "create", "namespace", namespace)
		c.createIntegration(t, namespace)
	}
	g.Expect(c.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "tocsin"}})).To(Succeed())
	subject := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: own, Name: "tocsin"}}
	for _, namespace := range append(slices.Clone(targets), own) {
		meta := metav1.ObjectMeta{Namespace: namespace, Name: "olm"}
		g.Expect(c.Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: spec.Permissions[0].Rules})).To(Succeed())
		g.Expect(c.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "olm"}, Subjects: subject,
		})).To(Succeed())
	}
	meta := metav1.ObjectMeta{Name: "olm"}
	g.Expect(c.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: spec.ClusterPermissions[0].Rules})).To(Succeed())
	g.Expect(c.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "olm"}, Subjects: subject,
	})).To(Succeed())

	args := slices.Clone(spec.Deployments[0].Spec.Template.Spec.Containers[0].Args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$(WATCH_NAMESPACE)", strings.Join(targets, ","))
	}
	log := filepath.Join(t.TempDir(), "log")
	manager := c.startManager(t, log, own, append(args, "--metrics-secure")...)
	for _, namespace := range targets {
		g.Eventually(post).WithArguments(t.Context(), manager.WebhookURL+testenv.Token(namespace, "test"), `{"dedup_key":"a"}`).
			WithTimeout(asLongAsItTakes).Should(Equal(http.StatusAccepted))
		c.kubectl(t, "-n", namespace, "wait", "--for=create", "incident/"+v1alpha1.IncidentName("test", "a"), "--timeout=30s")
	}
	for _, namespace := range []string{own, unserved} {
		g.Expect(post(t.Context(), manager.WebhookURL+testenv.Token(namespace, "test"), `{}`)).To(Equal(http.StatusUnauthorized), namespace)
	}
	g.Expect(manager.Stop()).To(Succeed())
	said, err := os.ReadFile(log)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(said)).NotTo(MatchRegexp("(?i)forbidden"))
}
