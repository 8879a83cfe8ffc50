package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/lib/version"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/gen/kustomize"
)

// number is the version of the bundle; a release sets its own.
const number = "0.1.0"

// builder adds objects to a ClusterServiceVersion.
type builder struct {
	csv      v1alpha1.ClusterServiceVersion
	image    string
	rules    map[string][]rbacv1.PolicyRule // of each Role and ClusterRole, by kind and name
	examples []json.RawMessage
}

// serviceVersion returns the ClusterServiceVersion as YAML.
func serviceVersion(objects []kustomize.Object, image string) (string, error) {
	b := &builder{image: image, rules: map[string][]rbacv1.PolicyRule{}}
	// The base comes first, and roles before the bindings that name them.
	for _, turn := range []func(kind string) bool{
		func(kind string) bool { return kind == "ClusterServiceVersion" },
		func(kind string) bool { return strings.HasSuffix(kind, "Role") },
		func(kind string) bool { return kind != "ClusterServiceVersion" && !strings.HasSuffix(kind, "Role") },
	} {
		for _, object := range objects {
			if !turn(object.Kind) {
				continue
			}
			if err := b.add(object); err != nil {
				return "", fmt.Errorf("%s %s: %w", object.Kind, object.Name, err)
			}
		}
	}
	icon, err := os.ReadFile("internal/page/static/icon.svg")
	if err != nil {
		return "", err
	}
	b.csv.Spec.Icon = []v1alpha1.Icon{{Data: base64.StdEncoding.EncodeToString(icon), MediaType: "image/svg+xml"}}
	b.csv.Name, b.csv.Spec.Version = "tocsin.v"+number, version.OperatorVersion{Version: semver.MustParse(number)}
	examples, err := json.MarshalIndent(b.examples, "", "  ")
	if err != nil {
		return "", err
	}
	b.csv.Annotations["alm-examples"], b.csv.Annotations["containerImage"] = string(examples), image
	b.csv.Labels = map[string]string{
		"operatorframework.io/arch.amd64": "supported",
		"operatorframework.io/arch.arm64": "supported",
		"operatorframework.io/os.linux":   "supported",
	}
	return withoutStatus(b.csv)
}

// add adds an object to the ClusterServiceVersion, if it belongs there.
func (b *builder) add(object kustomize.Object) error {
	text := []byte(object.Text)
	switch object.Kind {
	case "ClusterServiceVersion":
		return yaml.UnmarshalStrict(text, &b.csv)
	case "Role", "ClusterRole":
		var role rbacv1.ClusterRole
		err := yaml.Unmarshal(text, &role)
		b.rules[object.Kind+" "+object.Name] = role.Rules
		return err
	case "RoleBinding", "ClusterRoleBinding":
		return b.addBinding(object)
	case "Deployment":
		return b.addDeployment(text)
	case "CustomResourceDefinition":
		var definition apiextensionsv1.CustomResourceDefinition
		err := yaml.UnmarshalStrict(text, &definition)
		b.addDefinition(&definition)
		return err
	case "AlertEvent", "WebhookIntegration":
		example, err := yaml.YAMLToJSON(text)
		b.examples = append(b.examples, example)
		return err
	}
	return nil
}

// addBinding adds the rules of a role to the permissions of the service account to which it is bound. OLM makes Roles of
// permissions in the namespaces to serve, or ClusterRoles if these are all, and ClusterRoles of clusterPermissions.
func (b *builder) addBinding(object kustomize.Object) error {
	var binding rbacv1.RoleBinding
	if err := yaml.Unmarshal([]byte(object.Text), &binding); err != nil {
		return err
	}
	rules, ok := b.rules[binding.RoleRef.Kind+" "+binding.RoleRef.Name]
	if !ok || len(binding.Subjects) != 1 {
		return fmt.Errorf("its role %s is unknown, or it has several subjects", binding.RoleRef.Name)
	}
	spec := &b.csv.Spec.InstallStrategy.StrategySpec
	permissions := &spec.Permissions
	if object.Kind == "ClusterRoleBinding" {
		permissions = &spec.ClusterPermissions
	}
	for i := range *permissions {
		if (*permissions)[i].ServiceAccountName == binding.Subjects[0].Name {
			(*permissions)[i].Rules = append((*permissions)[i].Rules, rules...)
			return nil
		}
	}
	*permissions = append(*permissions, v1alpha1.StrategyDeploymentPermissions{
		ServiceAccountName: binding.Subjects[0].Name, Rules: rules,
	})
	return nil
}

// addDeployment adds the Deployment with the image.
func (b *builder) addDeployment(text []byte) error {
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict(text, &deployment); err != nil {
		return err
	}
	deployment.Spec.Template.Spec.Containers[0].Image = b.image
	strategy := &b.csv.Spec.InstallStrategy
	strategy.StrategyName = v1alpha1.InstallStrategyNameDeployment
	strategy.StrategySpec.DeploymentSpecs = append(strategy.StrategySpec.DeploymentSpecs, v1alpha1.StrategyDeploymentSpec{
		Name: deployment.Name, Label: deployment.Labels, Spec: deployment.Spec,
	})
	return nil
}

// withoutStatus returns the ClusterServiceVersion as YAML, without the status, which its type always writes.
func withoutStatus(csv v1alpha1.ClusterServiceVersion) (string, error) {
	encoded, err := yaml.Marshal(csv)
	if err != nil {
		return "", err
	}
	var content map[string]any
	if err := yaml.Unmarshal(encoded, &content); err != nil {
		return "", err
	}
	delete(content, "status")
	text, err := yaml.Marshal(content)
	return string(text), err
}
