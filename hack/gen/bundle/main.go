// Command bundle writes the manifests of the bundle for the Operator Lifecycle Manager (OLM) from what kustomize builds of
// config/manifests and prints to it.
//
// The ClusterServiceVersion is the base of config/manifests/bases with the Deployment, the rules of the manager's roles,
// descriptions of the CustomResourceDefinitions, the samples and the icon. See
// https://olm.operatorframework.io/docs/tasks/creating-operator-bundle.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/gen/kustomize"
)

func main() {
	image := flag.String("image", "tocsin:dev", "the image of the manager")
	flag.Parse()
	if err := write(*image); err != nil {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		os.Exit(1)
	}
}

// write writes the manifests.
func write(image string) error {
	objects, err := kustomize.Read(os.Stdin)
	if err != nil {
		return err
	}
	csv, err := serviceVersion(objects, image)
	if err != nil {
		return err
	}
	files := map[string]string{"tocsin.clusterserviceversion.yaml": csv}
	// The ClusterServiceVersion has the other objects, or OLM makes them itself. OLM chooses the namespace.
	for _, o := range objects {
		switch {
		case o.Kind == "CustomResourceDefinition":
			files[o.Name+".yaml"] = o.Text
		case o.Kind == "ClusterRole" && o.Name != "tocsin-metrics-auth", o.Kind == "Service", o.Kind == "PodDisruptionBudget":
			if metadata, is := o.Content["metadata"].(map[string]any); is {
				delete(metadata, "namespace")
			}
			text, err := yaml.Marshal(o.Content)
			if err != nil {
				return err
			}
			files[fmt.Sprintf("%s.%s.yaml", o.Name, strings.ToLower(o.Kind))] = string(text)
		}
	}
	return kustomize.WriteFiles("bundle/manifests", files)
}
