package clustercache

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// sized returns an integration whose spec takes about so many bytes.
func sized(namespace, name string, bytes int) *v1alpha1.WebhookIntegration {
	w := &v1alpha1.WebhookIntegration{}
	w.Namespace, w.Name, w.UID, w.ResourceVersion = namespace, name, types.UID(namespace+"/"+name), "7"
	w.Spec.Tokens = []v1alpha1.Token{{Name: "main", SHA256: strings.Repeat("0", 64)}}
	w.Spec.Defaults = &v1alpha1.AlertDefaults{Title: strings.Repeat("x", bytes)}
	return w
}

// hostile returns the JSON of an integration with as much as the schema allows of most fields.
func hostile(g *WithT, n int) []byte {
	text := func(characters int) string { return strings.Repeat("𝄞", characters) }
	w := sized("hostile", fmt.Sprint(n), 0)
	w.Labels, w.Spec.Defaults = map[string]string{}, &v1alpha1.AlertDefaults{Title: text(1024), Labels: map[string]v1alpha1.LabelValue{}}
	for i := range 64 {
		w.Labels[fmt.Sprintf("%s/%063d", strings.Repeat("p", 250), i)] = strings.Repeat("x", 63)
		w.Spec.Defaults.Labels[fmt.Sprint(text(126), i)] = v1alpha1.LabelValue(text(256))
	}
	w.Spec.Mapping = &v1alpha1.Mapping{Alerts: v1alpha1.Expression(text(2048)), Drop: v1alpha1.Expression(text(2048))}
	fields, expression := map[string]string{}, text(2048)
	for _, name := range []string{"title", "description", "severity", "status", "dedupKey", "link", "hostname", "region", "startTime",
		"endTime", "expiryTime", "labels", "annotations", "values", "type", "custom"} {
		fields[name] = expression
	}
	encoded, err := json.Marshal(fields)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(json.Unmarshal(encoded, &w.Spec.Mapping.Fields)).To(Succeed())
	w.Spec.Verify = &v1alpha1.Verification{PublicKeys: []v1alpha1.PublicKey{{Name: "a", Key: strings.Repeat("k", 1024)}}}
	encoded, err = json.Marshal(w)
	g.Expect(err).NotTo(HaveOccurred())
	return encoded
}

// TestHostileIntegrationsTakeABoundedMemory has many large ones of one namespace, as the informer decodes them.
func TestHostileIntegrationsTakeABoundedMemory(t *testing.T) {
	g := NewWithT(t)
	const objects, share, stubBytes = 300, 8 << 20, 10 << 10
	condensed := NewIntegrations(0.25)
	condensed.sizes.All = 4 * share
	whole, length := 0, 0
	took := heapOf(func() (cached []*v1alpha1.WebhookIntegration) {
		for n := range objects {
			stored, w := hostile(g, n), &v1alpha1.WebhookIntegration{}
			length = len(stored)
			g.Expect(json.Unmarshal(stored, w)).To(Succeed())
			_, err := condensed.Condense(w)
			g.Expect(err).NotTo(HaveOccurred())
			if integrations.IsWhole(w) {
				whole++
			}
			cached = append(cached, w)
		}
		return cached
	})
	stubs := objects - whole
	t.Logf("%d of %d bytes take %d; %d are whole, counted as %d", objects, length, took, whole, condensed.sizes.Sum())
	g.Expect(whole).To(BeNumerically(">", 5))
	g.Expect(took).To(BeNumerically("<", share+share/4+stubs*stubBytes))
	g.Expect(took).To(BeNumerically("<", objects*length/5))
	small := sized("other", "shop", 10_000)
	before := small.DeepCopy()
	_, err := condensed.Condense(small)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(small).To(Equal(before), "another namespace notices nothing")
}

// TestTheSizeOfAnIntegrationIsItsMemory compares what is counted with the heap.
func TestTheSizeOfAnIntegrationIsItsMemory(t *testing.T) {
	g := NewWithT(t)
	stored, size := hostile(g, 1), int64(0)
	took := heapOf(func() *v1alpha1.WebhookIntegration {
		w := &v1alpha1.WebhookIntegration{}
		g.Expect(json.Unmarshal(stored, w)).To(Succeed())
		size = memoryOf(&w.Spec) + memoryOf(w.Labels)
		return w
	})
	g.Expect(int64(took)).To(BeNumerically("~", size, size/4))
}

func TestIntegrationsKeepTheirPlaces(t *testing.T) {
	g, condensed := NewWithT(t), NewIntegrations(0.5)
	condensed.sizes.All = 100_000
	isWhole := func(namespace, name string, bytes int) bool {
		w := sized(namespace, name, bytes)
		for range 2 { // client-go may transform it twice
			_, err := condensed.Condense(w)
			g.Expect(err).NotTo(HaveOccurred())
		}
		g.Expect(w.Spec.Tokens).To(HaveLen(1), "a token of a stub is known")
		return integrations.IsWhole(w)
	}
	next := func() string {
		s, _ := condensed.NextStub(func(string) bool { return true })
		return s.Name.Name
	}
	g.Expect(isWhole("a", "first", 20_000)).To(BeTrue())
	g.Expect(isWhole("a", "second", 20_000)).To(BeTrue())
	g.Expect(isWhole("a", "third", 20_000)).To(BeFalse())
	g.Expect(isWhole("a", "fourth", 3_000)).To(BeTrue(), "there is still a place for a small one")
	g.Expect(isWhole("a", "first", 19_000)).To(BeTrue(), "what has a place keeps it")
	g.Expect(isWhole("a", "first", 40_000)).To(BeFalse(), "unless it grows too large")
	g.Expect(isWhole("a", "first", 39_000)).To(BeFalse())
	g.Expect(isWhole("b", "first", 20_000)).To(BeTrue(), "another namespace has a share of its own")
	g.Expect(next()).To(Equal("third"))
	condensed.PostponeStub(queue.Stub{UID: "a/third"})
	g.Expect(next()).To(Equal("third"), "the other one has no place")
	g.Expect(isWhole("a", "third", 20_000)).To(BeTrue())
	g.Expect(next()).To(BeEmpty())
	condensed.Forget(sized("a", "second", 0))
	condensed.Forget(sized("a", "third", 0))
	g.Expect(next()).To(Equal("first"))
	for _, name := range []string{"first", "fourth", "unknown"} {
		condensed.Forget(sized("a", name, 0))
	}
	condensed.Forget(sized("b", "first", 0))
	g.Expect(condensed.known).To(BeEmpty())
	g.Expect(condensed.sizes.Sum()).To(BeZero())
}

// TestAnIntegrationIsWholeWhenThereIsAPlace has one that is too large beside another one, for a cache of the whole cluster and for
// one of single namespaces.
func TestAnIntegrationIsWholeWhenThereIsAPlace(t *testing.T) {
	g := NewWithT(t)
	live, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	for _, perNamespace := range []bool{false, true} {
		namespace := testenv.Namespace(t, live)
		create := func(name string) *v1alpha1.WebhookIntegration {
			w := &v1alpha1.WebhookIntegration{}
			w.Namespace, w.Name = namespace, name
			w.Spec.Mapping = &v1alpha1.Mapping{Drop: v1alpha1.Expression(strings.Repeat("x", 2000))}
			g.Expect(live.Create(t.Context(), w)).To(Succeed())
			return w
		}
		condensed := NewIntegrations(0.4)
		condensed.sizes.All = 10_000
		options := cache.Options{
			Scheme:   testenv.Scheme(),
			ByObject: map[client.Object]cache.ByObject{&v1alpha1.WebhookIntegration{}: {Transform: condensed.Condense}},
		}
		if perNamespace {
			options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
		}
		objects, err := (&Informers{Integrations: condensed}).NewCache(config, options)
		g.Expect(err).NotTo(HaveOccurred())
		ctx, cancel := context.WithCancel(t.Context())
		first := create("first")
		go func() { _ = objects.Start(ctx) }()
		g.Expect(objects.WaitForCacheSync(ctx)).To(BeTrue())
		second := create("second")
		cached := func() (w v1alpha1.WebhookIntegration) {
			_ = objects.Get(ctx, client.ObjectKeyFromObject(second), &w)
			return w
		}
		isWhole := func() bool { w := cached(); return integrations.IsWhole(&w) && w.Spec.Mapping != nil }
		g.Eventually(func() string { return cached().ResourceVersion }, "30s", "20ms").Should(HavePrefix("stub-"))
		second.Spec.Suspend = true
		g.Expect(live.Update(ctx, second)).To(Succeed())
		g.Eventually(func() bool { return cached().Spec.Suspend }, "30s", "20ms").Should(BeTrue(), "a stub follows its integration")
		g.Expect(isWhole()).To(BeFalse())
		g.Expect(live.Delete(ctx, first)).To(Succeed())
		g.Eventually(isWhole, "30s", "20ms").Should(BeTrue())
		cancel()
	}
}
