package schemacheck

import (
	"context"
	"os"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

var config *rest.Config

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(c *rest.Config) { config = c }))
}

// forget returns a change that makes a schema older: it takes the field at the end of the path out.
func forget(path ...string) func(*apiextensionsv1.JSONSchemaProps) {
	return func(schema *apiextensionsv1.JSONSchemaProps) {
		if len(path) == 1 {
			delete(schema.Properties, path[0])
			return
		}
		property := schema.Properties[path[0]]
		inner := &property
		if property.Items != nil {
			inner = property.Items.Schema
		}
		forget(path[1:]...)(inner)
		schema.Properties[path[0]] = property
	}
}

func TestOlderCustomResourceDefinitionsAreFound(t *testing.T) {
	g := NewWithT(t)
	scheme := testenv.Scheme()
	g.Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	c, err := client.New(config, client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	checker, err := New(config, logr.Discard())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(checker.Verdict()).To(MatchError(errUnchecked))
	verdict := func() error {
		checker.check(t.Context())
		return checker.Verdict()
	}
	g.Eventually(verdict, "20s", "100ms").Should(Succeed(), "the CustomResourceDefinitions of this version have every field")

	for sentence, test := range map[string]struct {
		resource string
		older    func(*apiextensionsv1.JSONSchemaProps)
		message  string
	}{
		"a field of AlertEvents": {"alertevents", forget("spec", "defaults", "severity"),
			"alertevents.tocsin.dev is older than this manager and lacks spec.defaults.severity: apply config/crd"},
		"a field of a report": {"alertevents", forget("spec", "report", "comment"),
			"alertevents.tocsin.dev is older than this manager and lacks spec.report.comment"},
		"a field in the status of Incidents": {"incidents", forget("status", "ledger", "resourceVersion"),
			"incidents.tocsin.dev is older than this manager and lacks status.ledger.resourceVersion"},
		"a field in the status of WebhookIntegrations": {"webhookintegrations", forget("status", "lastRejection"),
			"webhookintegrations.tocsin.dev is older than this manager and lacks status.lastRejection"},
		"a field in the spec of WebhookIntegrations": {"webhookintegrations", forget("spec", "mapping"),
			"webhookintegrations.tocsin.dev is older than this manager and lacks spec.mapping"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: test.resource + ".tocsin.dev"}}
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(definition), definition)).To(Succeed())
			current := definition.DeepCopy()
			schema := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
			withoutRules(schema)
			test.older(schema)
			g.Expect(c.Update(t.Context(), definition)).To(Succeed())
			g.Eventually(verdict, "20s", "100ms").Should(MatchError(ContainSubstring(test.message)))

			current.ResourceVersion = definition.ResourceVersion
			g.Expect(c.Update(t.Context(), current)).To(Succeed())
			g.Eventually(verdict, "20s", "100ms").Should(Succeed(), "as soon as they are applied")
		})
	}
}

// withoutRules takes out the rules of a schema, which may need the field that goes.
func withoutRules(schema *apiextensionsv1.JSONSchemaProps) {
	schema.XValidations = nil
	for name, property := range schema.Properties {
		withoutRules(&property)
		schema.Properties[name] = property
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		withoutRules(schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		withoutRules(schema.AdditionalProperties.Schema)
	}
}

func TestAnAPIServerThatIsAwayChangesNoVerdict(t *testing.T) {
	g := NewWithT(t)
	checker, err := New(config, logr.Discard())
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	checker.check(ctx)
	g.Expect(checker.Verdict()).To(MatchError(errUnchecked))
	g.Eventually(func() error {
		checker.check(t.Context())
		return checker.Verdict()
	}, "20s", "100ms").Should(Succeed())
	checker.check(ctx)
	g.Expect(checker.Verdict()).To(Succeed())
}
