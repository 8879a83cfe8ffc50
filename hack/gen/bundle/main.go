// Command bundle writes the bundle for the Operator Lifecycle Manager (OLM) from what kustomize builds of config/manifests.
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

// labels describe the bundle, in metadata/annotations.yaml and as labels of its image.
const labels = `operators.operatorframework.io.bundle.mediatype.v1: registry+v1
operators.operatorframework.io.bundle.manifests.v1: manifests/
operators.operatorframework.io.bundle.metadata.v1: metadata/
operators.operatorframework.io.bundle.package.v1: tocsin
operators.operatorframework.io.bundle.channels.v1: candidate
operators.operatorframework.io.bundle.channel.default.v1: candidate
`

func main() {
	program := flag.String("kustomize", "bin/tools/kustomize", "kustomize")
	image := flag.String("image", "tocsin:dev", "the image of the manager")
	flag.Parse()
	if err := write(*program, *image); err != nil {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		os.Exit(1)
	}
}

// write writes the bundle and its Dockerfile.
func write(program, image string) error {
	objects, err := kustomize.Build(program, "manifests")
	if err != nil {
		return err
	}
	csv, err := serviceVersion(objects, image)
	if err != nil {
		return err
	}
	indented := strings.ReplaceAll(strings.TrimSpace(labels), "\n", "\n  ")
	files := map[string]string{
		"manifests/tocsin.clusterserviceversion.yaml": csv,
		"metadata/annotations.yaml":                   "annotations:\n  " + indented + "\n",
	}
	for _, object := range objects {
		if path, text, err := separate(object); err != nil {
			return err
		} else if path != "" {
			files["manifests/"+path] = text
		}
	}
	if err := kustomize.WriteFiles("bundle", files); err != nil {
		return err
	}
	return os.WriteFile("bundle.Dockerfile", []byte(dockerfile()), 0o644)
}

// separate returns an object that is a file of its own in the bundle; no path for those that the ClusterServiceVersion
// has and those that OLM makes itself. OLM chooses the namespace.
func separate(object kustomize.Object) (path, text string, err error) {
	switch {
	case object.Kind == "CustomResourceDefinition":
		return object.Name + ".yaml", object.Text, nil
	case object.Kind == "ClusterRole" && object.Name != "tocsin-metrics-auth", object.Kind == "Service",
		object.Kind == "PodDisruptionBudget":
		var content map[string]any
		if err := yaml.Unmarshal([]byte(object.Text), &content); err != nil {
			return "", "", fmt.Errorf("reading %s: %w", object.Name, err)
		}
		if metadata, is := content["metadata"].(map[string]any); is {
			delete(metadata, "namespace")
		}
		encoded, err := yaml.Marshal(content)
		return fmt.Sprintf("%s.%s.yaml", object.Name, strings.ToLower(object.Kind)), string(encoded), err
	}
	return "", "", nil
}

// dockerfile returns the Dockerfile of the bundle's image, which has nothing but the files and the labels.
func dockerfile() string {
	var text strings.Builder
	text.WriteString("# Written by hack/gen/bundle; \"make bundle\" writes it anew.\nFROM scratch\n")
	for line := range strings.Lines(labels) {
		fmt.Fprintf(&text, "LABEL %s\n", strings.Replace(strings.TrimSpace(line), ": ", "=", 1))
	}
	text.WriteString("COPY bundle/manifests /manifests/\nCOPY bundle/metadata /metadata/\n")
	return text.String()
}
