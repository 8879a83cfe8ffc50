package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/gen/kustomize"
)

// builder adds objects to a ClusterServiceVersion.
type builder struct {
	csv      v1alpha1.ClusterServiceVersion
	image    string
	rules    map[string][]rbacv1.PolicyRule // of each Role and ClusterRole, by kind and name
	examples []map[string]any
}

// serviceVersion returns the ClusterServiceVersion as YAML.
func serviceVersion(objects []kustomize.Object, image string) (string, error) {
	b := &builder{image: image, rules: map[string][]rbacv1.PolicyRule{}}
	for _, add := range []func(kustomize.Object) error{b.addBase, b.addObject} {
		for _, object := range objects {
			if err := add(object); err != nil {
				return "", fmt.Errorf("%s %s: %w", object.Kind, object.Name, err)
			}
		}
	}
	icon, err := os.ReadFile("internal/page/static/icon.svg")
	if err != nil {
		return "", err
	}
	b.csv.Spec.Icon = []v1alpha1.Icon{{Data: base64.StdEncoding.EncodeToString(icon), MediaType: "image/svg+xml"}}
	examples, err := json.MarshalIndent(b.examples, "", "  ")
	if err != nil {
		return "", err
	}
	b.csv.Annotations["alm-examples"], b.csv.Annotations["containerImage"] = string(examples), image
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&b.csv)
	if err != nil {
		return "", err
	}
	delete(content, "status") // which its type always writes
	text, err := yaml.Marshal(content)
	return string(text), err
}

// addBase adds what the other objects are added to, and the roles that bindings name.
func (b *builder) addBase(object kustomize.Object) error {
	switch object.Kind {
	case "ClusterServiceVersion":
		return yaml.UnmarshalStrict([]byte(object.Text), &b.csv)
	case "Role", "ClusterRole":
		var role rbacv1.ClusterRole
		err := yaml.Unmarshal([]byte(object.Text), &role)
		b.rules[object.Kind+" "+object.Name] = role.Rules
		return err
	}
	return nil
}

// addObject adds another object to the ClusterServiceVersion, if it belongs there.
func (b *builder) addObject(object kustomize.Object) error {
	switch object.Kind {
	case "RoleBinding", "ClusterRoleBinding":
		return b.addBinding(object)
	case "Deployment":
		return b.addDeployment([]byte(object.Text))
	case "CustomResourceDefinition":
		var definition apiextensionsv1.CustomResourceDefinition
		err := yaml.UnmarshalStrict([]byte(object.Text), &definition)
		b.addDefinition(&definition)
		return err
	case "AlertEvent", "WebhookIntegration":
		b.examples = append(b.examples, object.Content)
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
	of := binding.Subjects[0].Name
	i := slices.IndexFunc(*permissions, func(p v1alpha1.StrategyDeploymentPermissions) bool { return p.ServiceAccountName == of })
	if i < 0 {
		i = len(*permissions)
		*permissions = append(*permissions, v1alpha1.StrategyDeploymentPermissions{ServiceAccountName: of})
	}
	(*permissions)[i].Rules = append((*permissions)[i].Rules, rules...)
	return nil
}

// addDeployment adds the Deployment with the image.
func (b *builder) addDeployment(text []byte) error {
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict(text, &deployment); err != nil {
		return err
	}
	deployment.Spec.Template.Spec.Containers[0].Image = b.image
	spec := &b.csv.Spec.InstallStrategy.StrategySpec
	spec.DeploymentSpecs = append(spec.DeploymentSpecs, v1alpha1.StrategyDeploymentSpec{
		Name: deployment.Name, Label: deployment.Labels, Spec: deployment.Spec,
	})
	return nil
}
