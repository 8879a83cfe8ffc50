package v1alpha1_test

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/testenv"
)

var (
	config *rest.Config
	// apiClient speaks the Go types, as the operator does.
	apiClient client.Client
	// rawClient sends and receives bytes, as any other client may.
	rawClient rest.Interface
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(c *rest.Config) {
		config = c
		apiClient = must(client.New(c, client.Options{Scheme: testenv.Scheme()}))
		raw := rest.CopyConfig(c)
		raw.APIPath = "/apis"
		raw.GroupVersion = &v1alpha1.GroupVersion
		raw.NegotiatedSerializer = serializer.NewCodecFactory(testenv.Scheme()).WithoutConversion()
		rawClient = must(rest.RESTClientFor(raw))
	}))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// create posts an object as JSON text under strict field validation and returns the answer's body.
func create(namespace, resource, body string) ([]byte, error) {
	return rawClient.Post().Namespace(namespace).Resource(resource).
		Param("fieldValidation", "Strict").
		SetHeader("Content-Type", "application/json").
		Body([]byte(body)).
		Do(context.Background()).Raw()
}

// patchStatus merges into the status of an object.
func patchStatus(namespace, resource, name, body string) ([]byte, error) {
	return rawClient.Patch(types.MergePatchType).Namespace(namespace).Resource(resource).Name(name).SubResource("status").
		Param("fieldValidation", "Strict").
		Body([]byte(body)).
		Do(context.Background()).Raw()
}

func decode(raw []byte) *unstructured.Unstructured {
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		panic(err)
	}
	return &unstructured.Unstructured{Object: object}
}
