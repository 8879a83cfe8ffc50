package v1alpha1_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

var (
	// config is the administrator's.
	config *rest.Config
	// apiClient speaks the Go types, as the operator does.
	apiClient client.Client
	// rawClient sends and receives bytes, as any other client may.
	rawClient rest.Interface
	// schemaClient does so too, with a namespace. Its server may be one in memory: for the thousands of writes of a test whose outcome
	// the schemas decide.
	schemaClient    rest.Interface
	schemaNamespace func(t *testing.T) string
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(c *rest.Config) {
		config = c
		apiClient = must(client.New(c, client.Options{Scheme: testenv.Scheme()}))
		rawClient = rawClientFor(c)
		schemas, mapper := c, apiClient.RESTMapper()
		if memory := must(testenv.MemoryServer()); memory != nil {
			schemas = memory
		}
		schemaClient = rawClientFor(schemas)
		typed := must(client.New(schemas, client.Options{Scheme: testenv.Scheme(), Mapper: mapper}))
		schemaNamespace = func(t *testing.T) string { t.Helper(); return testenv.Namespace(t, typed) }
	}))
}

func rawClientFor(c *rest.Config) rest.Interface {
	raw := rest.CopyConfig(c)
	raw.APIPath = "/apis"
	raw.GroupVersion = &v1alpha1.GroupVersion
	raw.NegotiatedSerializer = serializer.NewCodecFactory(testenv.Scheme()).WithoutConversion()
	return must(rest.RESTClientFor(raw))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// object is a resource as JSON has it.
type object = map[string]any

// resources are the plural names of the kinds.
var resources = map[string]string{
	"WebhookIntegration": "webhookintegrations",
	"AlertEvent":         "alertevents",
	"Heartbeat":          "heartbeats",
	"Incident":           "incidents",
	"IncidentSummary":    "incidentsummaries",
	"MaintenanceWindow":  "maintenancewindows",
	"RequestCapture":     "requestcaptures",
}

// full is the object in testdata that has every field of its kind.
func full(t *testing.T, file string) object {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}

func parse(t *testing.T, text string) object {
	t.Helper()
	o := object{}
	if err := yaml.UnmarshalStrict([]byte(text), &o); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return o
}

// with returns an object of a kind with a generated name and the given spec.
func with(kind string, spec any) object {
	return object{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       kind,
		"metadata":   object{"generateName": "test-"},
		"spec":       spec,
	}
}

// post creates an object under strict field validation and returns it as the API server does. The error
// has the API server's message.
func post(namespace string, o object, options ...string) (object, error) {
	request := rawClient.Post().Namespace(namespace).Resource(resources[o["kind"].(string)])
	return send(request, must(json.Marshal(o)), "application/json", options...)
}

// postText is post for a spec that is JSON text already.
func postText(namespace, kind, spec string) (object, error) {
	return post(namespace, with(kind, json.RawMessage(spec)))
}

// patchStatus merges a status, given as JSON text, into that of an object.
func patchStatus(namespace, kind, name, status string, options ...string) (object, error) {
	request := rawClient.Patch(types.MergePatchType).Namespace(namespace).Resource(resources[kind]).Name(name).SubResource("status")
	return send(request, []byte(`{"status":`+status+`}`), string(types.MergePatchType), options...)
}

func send(request *rest.Request, body []byte, contentType string, options ...string) (object, error) {
	answer, err := sendRaw(request, body, contentType, options...)
	if err != nil {
		return nil, err
	}
	o := object{}
	return o, json.Unmarshal(answer, &o)
}

func sendRaw(request *rest.Request, body []byte, contentType string, options ...string) ([]byte, error) {
	request = request.Param("fieldValidation", "Strict").SetHeader("Content-Type", contentType).Body(body)
	for _, option := range options {
		request = request.Param(option, "All")
	}
	answer, err := request.Do(context.Background()).Raw()
	if err != nil {
		var status metav1.Status
		if json.Unmarshal(answer, &status) == nil && status.Message != "" {
			err = errors.New(status.Message)
		}
	}
	return answer, err
}

// dryRun has the API server check a request and store nothing.
const dryRun = "dryRun"

func nameOf(o object) string {
	return o["metadata"].(object)["name"].(string)
}

// without returns o without some of its fields.
func without(o object, fields ...string) object {
	o = maps.Clone(o)
	for _, field := range fields {
		delete(o, field)
	}
	return o
}
