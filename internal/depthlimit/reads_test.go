package depthlimit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

var config *rest.Config

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(c *rest.Config) { config = c }))
}

// nested is a value of so many levels, objects and arrays in turns.
func nested(levels int) any {
	var value any = "bottom"
	for level := range levels {
		if level%2 == 0 {
			value = map[string]any{`"]}`: value}
		} else {
			value = []any{value}
		}
	}
	return value
}

// hostile are AlertEvents that a tenant may create, keyed by a sentence. Each changes an ordinary one.
var hostile = map[string]func(*unstructured.Unstructured){
	"a name of the greatest length": func(o *unstructured.Unstructured) {
		o.SetName(strings.Repeat("a.", 126) + "z")
	},
	"a thousand labels": func(o *unstructured.Unstructured) {
		labels := map[string]string{}
		for i := range 1001 {
			labels[fmt.Sprintf("example.com/label-%d", i)] = strings.Repeat("x", 63)
		}
		o.SetLabels(labels)
	},
	"an annotation of 1,001 opening brackets":            annotated(strings.Repeat("[", 1001)),
	"an annotation of 1,001 opening braces":              annotated(strings.Repeat("{", 1001)),
	"an annotation of 1,001 closing brackets":            annotated(strings.Repeat("]", 1001)),
	"an annotation with one quote before the brackets":   annotated(`"` + strings.Repeat("[", 1001)),
	"an annotation with a backslash and a quote":         annotated(`\"` + strings.Repeat(`[\"`, 1001)),
	"an annotation that ends with a backslash":           annotated(strings.Repeat("[", 1001) + `\`),
	"an annotation that is not ASCII":                    annotated(strings.Repeat("\u2028［【„🧨\x00\u007f", 500) + strings.Repeat("[", 1001)),
	"an annotation as large as the API server allows it": annotated(strings.Repeat("[", 255<<10)),
	"an annotation that nests as JSON does":              annotated(strings.Repeat(`{"a":[`, 2000)),
	"a finalizer":                                        func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/stays"}) },
	"an owner that does not exist": func(o *unstructured.Unstructured) {
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "[[[[", Name: "{{{{", UID: "[\"{"}})
	},
	"a spec of nearly 10,000 levels": custom(nested(9995)),
	"a spec of 1,001 levels":         custom(nested(1001)),
	"keys and texts of brackets": custom(map[string]any{
		strings.Repeat(`[{"\`, 300): strings.Repeat(`{["\\`, 300), "\u2028": "［\\\"", "": "[", `\`: `\`, `"`: `"`,
	}),
	"a large text":   custom(strings.Repeat(`["`, 200<<10)),
	"a large number": custom(int64(9007199254740991)),
}

func annotated(value string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"example.com/hostile": value}) }
}

func custom(value any) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		o.Object["spec"].(map[string]any)["alerts"].([]any)[0].(map[string]any)["custom"] = map[string]any{"value": value}
	}
}

// createHostile creates all of them in the namespace and returns their annotations by UID.
func createHostile(t *testing.T, c client.Client, namespace string) map[string]map[string]string {
	t.Helper()
	created := map[string]map[string]string{}
	for i, sentence := range slices.Sorted(maps.Keys(hostile)) {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"integrationName": "test",
			"alerts":          []any{map[string]any{"dedupKey": "key", "status": "firing", "title": sentence}},
		}}}
		object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AlertEvent"))
		object.SetNamespace(namespace)
		object.SetName(fmt.Sprintf("hostile-%d", i))
		hostile[sentence](object)
		annotations := object.GetAnnotations()
		NewWithT(t).Expect(c.Create(t.Context(), object, client.FieldOwner(strings.Repeat("[", 128)))).To(Succeed(), sentence)
		created[string(object.GetUID())] = annotations
	}
	t.Cleanup(func() { // or no other test can read
		ctx := context.Background()
		stays := &metav1.PartialObjectMetadataList{}
		stays.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AlertEventList"))
		NewWithT(t).Expect(c.List(ctx, stays, client.InNamespace(namespace))).To(Succeed())
		for i := range stays.Items {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
			NewWithT(t).Expect(c.Patch(ctx, &stays.Items[i], patch)).To(Succeed())
			NewWithT(t).Expect(client.IgnoreNotFound(c.Delete(ctx, &stays.Items[i]))).To(Succeed())
		}
	})
	return created
}

// The kinds of objects that a client asks for, and the lists of them.
func typed() (client.Object, client.ObjectList) {
	return &v1alpha1.AlertEvent{}, &v1alpha1.AlertEventList{}
}

func untyped() (client.Object, client.ObjectList) {
	object, list := &unstructured.Unstructured{}, &unstructured.UnstructuredList{}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AlertEvent"))
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AlertEventList"))
	return object, list
}

func metadata() (client.Object, client.ObjectList) {
	object, list := &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadataList{}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AlertEvent"))
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AlertEventList"))
	return object, list
}

// seen are the annotations of what was read, by UID.
type seen map[string]map[string]string

func (s seen) add(objects ...runtime.Object) error {
	for _, object := range objects {
		accessor, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		s[string(accessor.GetUID())] = accessor.GetAnnotations()
	}
	return nil
}

func readList(ctx context.Context, c client.Reader, namespace string, list client.ObjectList) (seen, error) {
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	read := seen{}
	return read, read.add(objects...)
}

// readEach gets every object by its name.
func readEach(ctx context.Context, c client.Reader, names []string, namespace string, object client.Object) (seen, error) {
	read := seen{}
	for _, name := range names {
		one := object.DeepCopyObject().(client.Object)
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, one); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if err := read.add(one); err != nil {
			return nil, err
		}
	}
	return read, nil
}

// readWatch watches from the beginning until it has seen so many objects.
func readWatch(ctx context.Context, c client.WithWatch, namespace string, list client.ObjectList, count int) (seen, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	watcher, err := c.Watch(ctx, list, client.InNamespace(namespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}})
	if err != nil {
		return nil, err
	}
	defer watcher.Stop()
	read := seen{}
	for len(read) < count {
		e, ok := <-watcher.ResultChan()
		if !ok || e.Type == watch.Error {
			return nil, fmt.Errorf("the watch ended after %d of %d objects: %v", len(read), count, e.Object)
		}
		if err := read.add(e.Object); err != nil {
			return nil, err
		}
	}
	return read, nil
}

// readCache fills a cache and lists from it.
func readCache(ctx context.Context, c *rest.Config, namespace string, object client.Object, list client.ObjectList) (seen, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	objects, err := cache.New(c, cache.Options{
		Scheme: testenv.Scheme(), DefaultNamespaces: map[string]cache.Config{namespace: {}},
	})
	if err != nil {
		return nil, err
	}
	go func() { _ = objects.Start(ctx) }()
	if !objects.WaitForCacheSync(ctx) {
		return nil, ctx.Err()
	}
	if _, err := objects.GetInformer(ctx, object); err != nil {
		return nil, err
	}
	return readList(ctx, objects, namespace, list)
}

// TestHostileObjectsAreRead reads AlertEvents that a tenant made by hand in every way in which the manager and its
// libraries read.
func TestHostileObjectsAreRead(t *testing.T) {
	g := NewWithT(t)
	plain, err := client.NewWithWatch(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	namespace := testenv.Namespace(t, plain)
	created := createHostile(t, plain, namespace)
	_, err = readList(t.Context(), plain, namespace, &v1alpha1.AlertEventList{})
	g.Expect(err).To(MatchError(ContainSubstring("exceeded max depth")), "the objects are as hostile as they should be")

	limited := rest.CopyConfig(config)
	limited.Wrap(Wrap(v1alpha1.GroupVersion.Group))
	c, err := client.NewWithWatch(limited, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	_, everything := metadata()
	g.Expect(plain.List(t.Context(), everything, client.InNamespace(namespace))).To(Succeed())
	var names []string
	for _, item := range everything.(*metav1.PartialObjectMetadataList).Items {
		names = append(names, item.Name)
	}

	for sentence, objects := range map[string]func() (client.Object, client.ObjectList){
		"typed, as JSON": typed, "untyped, as JSON": untyped, "metadata, as protobuf": metadata,
	} {
		for way, read := range map[string]func(client.Object, client.ObjectList) (seen, error){
			"get": func(o client.Object, _ client.ObjectList) (seen, error) {
				return readEach(t.Context(), c, names, namespace, o)
			},
			"list": func(_ client.Object, l client.ObjectList) (seen, error) {
				return readList(t.Context(), c, namespace, l)
			},
			"watch": func(_ client.Object, l client.ObjectList) (seen, error) {
				return readWatch(t.Context(), c, namespace, l, len(created))
			},
			"cache": func(o client.Object, l client.ObjectList) (seen, error) {
				return readCache(t.Context(), limited, namespace, o, l)
			},
		} {
			t.Run(sentence+", "+way, func(t *testing.T) {
				g := NewWithT(t)
				read, err := read(objects())
				g.Expect(err).NotTo(HaveOccurred())
				expectRead(g, read, created)
			})
		}
	}
	t.Run("metadata, as JSON, list", func(t *testing.T) {
		g := NewWithT(t)
		read, err := readMetadataAsJSON(t.Context(), limited, namespace)
		g.Expect(err).NotTo(HaveOccurred())
		expectRead(g, read, created)
	})
}

// expectRead compares without printing megabytes.
func expectRead(g *WithT, read, created map[string]map[string]string) {
	g.Expect(slices.Sorted(maps.Keys(read))).To(Equal(slices.Sorted(maps.Keys(created))))
	for uid := range created {
		g.Expect(maps.Equal(read[uid], created[uid])).To(BeTrue(), "the annotations of %s are changed", uid)
	}
}

// readMetadataAsJSON lists metadata as a client does that knows no protobuf.
func readMetadataAsJSON(ctx context.Context, c *rest.Config, namespace string) (seen, error) {
	httpClient, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, err
	}
	host, _, err := rest.DefaultServerURL(c.Host, "", schema.GroupVersion{}, true)
	if err != nil {
		return nil, err
	}
	url := host.JoinPath("apis", v1alpha1.GroupVersion.String(), "namespaces", namespace, "alertevents")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	response, err := httpClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var list metav1.PartialObjectMetadataList
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return nil, err
	}
	read := seen{}
	for i := range list.Items {
		if err := read.add(&list.Items[i]); err != nil {
			return nil, err
		}
	}
	return read, nil
}
