package v1alpha1_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/heartbeats"
	"github.com/tocsin-dev/tocsin/internal/maintenance"
)

var yamlBlock = regexp.MustCompile("(?ms)^ *```yaml\n(.*?)^ *```$")

// specPage reads a page of docs/spec/v1alpha1.
func specPage(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "spec", "v1alpha1", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheExamplesInTheDocsAreAccepted(t *testing.T) {
	for kind := range resources {
		t.Run(kind, func(t *testing.T) {
			g := NewWithT(t)
			namespace := testenv.Namespace(t, apiClient)
			examples := yamlBlock.FindAllStringSubmatch(specPage(t, strings.ToLower(kind)+".md"), -1)
			g.Expect(examples).NotTo(BeEmpty())
			for _, example := range examples {
				o := parse(t, example[1])
				g.Expect(o["kind"]).To(Equal(kind))
				created, err := post(namespace, without(o, "status"))
				g.Expect(err).NotTo(HaveOccurred(), example[1])
				if status, ok := o["status"]; ok {
					_, err = patchStatus(namespace, kind, nameOf(created), string(must(json.Marshal(status))))
					g.Expect(err).NotTo(HaveOccurred(), example[1])
				}
			}
		})
	}
}

// The windows in docs/maintenance.md can be stored, and evaluated.
func TestTheExampleOfMaintenanceIsAccepted(t *testing.T) {
	g := NewWithT(t)
	namespace := testenv.Namespace(t, apiClient)
	for _, example := range yamlBlock.FindAllStringSubmatch(specPage(t, "../../maintenance.md"), -1) {
		_, err := post(namespace, parse(t, example[1]))
		g.Expect(err).NotTo(HaveOccurred(), example[1])
	}
	var list v1alpha1.MaintenanceWindowList
	g.Expect(apiClient.List(t.Context(), &list, client.InNamespace(namespace))).To(Succeed())
	g.Expect(list.Items).To(HaveLen(2))
	g.Expect(maintenance.New(list.Items...)).To(HaveLen(2))
}

// The heartbeats in docs/heartbeats.md can be defined, and expect what the page says.
func TestTheExamplesOfHeartbeatsAreAccepted(t *testing.T) {
	g := NewWithT(t)
	namespace := testenv.Namespace(t, apiClient)
	for _, example := range yamlBlock.FindAllStringSubmatch(specPage(t, "../../heartbeats.md"), -1) {
		if o := parse(t, example[1]); o["kind"] == "Heartbeat" {
			_, err := post(namespace, o)
			g.Expect(err).NotTo(HaveOccurred(), example[1])
		}
	}
	var list v1alpha1.HeartbeatList
	g.Expect(apiClient.List(t.Context(), &list, client.InNamespace(namespace))).To(Succeed())
	g.Expect(list.Items).To(HaveLen(2))
	for i := range list.Items {
		list.Items[i].Status.LastSignalTime = new(v1alpha1.NewTimestamp(time.Date(2026, 5, 4, 2, 0, 0, 0, time.UTC)))
		expectation, ok, err := heartbeats.Of(&list.Items[i])
		g.Expect(ok && err == nil).To(BeTrue())
		want := map[string]string{"backup": "2026-05-05T01:30:00Z", "watchdog": "2026-05-04T02:02:24Z"}[list.Items[i].Name]
		g.Expect(expectation.Due.UTC().Format(time.RFC3339)).To(Equal(want))
	}
}

// The integration in docs/federation.md is one of a hub.
func TestTheExampleOfFederationIsAccepted(t *testing.T) {
	g := NewWithT(t)
	example := yamlBlock.FindStringSubmatch(specPage(t, "../../federation.md"))
	o := parse(t, example[1])
	o["metadata"].(object)["namespace"] = testenv.Namespace(t, apiClient)
	_, err := post(o["metadata"].(object)["namespace"].(string), o)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o["spec"].(object)["federate"]).To(BeTrue())
}

func TestTheDocsNameEveryField(t *testing.T) {
	for kind, crd := range crds(t) {
		g := NewWithT(t)
		page := specPage(t, strings.ToLower(kind)+".md")
		root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		var missing []string
		for _, part := range []string{"spec", "status"} {
			schema := root.Properties[part]
			for name := range schema.Properties {
				if !strings.Contains(page, "`."+part+"."+name+"`") {
					missing = append(missing, part+"."+name)
				}
			}
			for _, name := range fieldNames(part, &schema) {
				if !strings.Contains(page, "`"+name+"`") && !strings.Contains(page, "."+name+"`") {
					missing = append(missing, name)
				}
			}
		}
		g.Expect(missing).To(BeEmpty(), "not in the page of %s", kind)
	}
}

// fieldNames lists the names of all fields below a schema, those of conditions aside.
func fieldNames(path string, schema *apiextensionsv1.JSONSchemaProps) []string {
	if fromCondition(path) {
		return nil
	}
	var names []string
	for name, property := range schema.Properties {
		names = append(names, name)
		names = append(names, fieldNames(path+"."+name, &property)...)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		names = append(names, fieldNames(path+"[]", schema.Items.Schema)...)
	}
	return names
}

func TestTheDocsDeriveTheNamesRight(t *testing.T) {
	g := NewWithT(t)
	name := v1alpha1.IncidentName("prometheus", "disk/db-1")
	g.Expect(specPage(t, "incident.md")).To(ContainSubstring("\n  name: " + name + "\n"))
	g.Expect(specPage(t, "alertevent.md")).To(ContainSubstring("incidentName: " + name + "\n"))
}
