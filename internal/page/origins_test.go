package page

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

func TestOriginsOfAnIncident(t *testing.T) {
	long := "'" + strings.Repeat("<b>\u202e", 300) + "'"
	own := &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{Title: "alert.name", Region: v1alpha1.Expression(long)}}
	program, err := mapping.Compile("", own)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	read, err := program.Alerts(map[string]any{"name": "a", "severity": "critical"}, nil, incidentNamed("", "").Status.OpenedTime.Time)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	alert := &read.Alerts[0]
	alert.TellOrigins()
	changed := &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{Title: "alert.title"}}
	forbidden := apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("webhookintegrations").GroupResource(), "mon", errors.New("no"))
	for sentence, test := range map[string]struct {
		origins string
		mapping *v1alpha1.Mapping // of the integration
		failure error             // of reading it
		title   string            // empty: nothing is known
		reads   int
	}{
		"an expression of the mapping":     {alert.Origins, own, nil, "mapping: alert.name", 1},
		"a mapping that was changed":       {alert.Origins, changed, nil, "mapping, changed or deleted since", 1},
		"a mapping that cannot be read":    {alert.Origins, own, forbidden, "mapping", 1},
		"a key, without the integration":   {"//k", own, forbidden, "key title", 0},
		"a key that was read as the title": {"//n///ASummary", own, nil, "key Summary", 0},
		"nothing is stored":                {"", own, nil, "", 0},
		"another text is stored":           {"<script>", own, nil, "", 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			incident := incidentNamed("shop", "a")
			incident.Status.Alert.Region, incident.Status.Alert.Origins = "eu", test.origins
			integration := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mon"}}
			integration.Spec.Mapping = test.mapping
			reads := 0
			c := interceptor.NewClient(newFake(integration), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
					reads++
					if test.failure != nil {
						return test.failure
					}
					return c.Get(ctx, key, o, options...)
				}})
			origins := originsOf(t.Context(), c, incident)
			g.Expect(reads).To(Equal(test.reads))
			if test.title == "" {
				g.Expect(origins).To(BeEmpty())
				return
			}
			g.Expect(origins).To(ContainElement(fieldOrigin{"title", test.title}))
			for _, one := range origins {
				g.Expect(len([]rune(one.Origin))).To(BeNumerically("<=", maxOriginChars))
				g.Expect(one.Origin).NotTo(ContainSubstring("\u202e"))
			}
		})
	}
}

func TestAnIncidentHasItsOrigins(t *testing.T) {
	g := NewWithT(t)
	incident := incidentNamed("shop", "a")
	incident.Status.Alert.Origins = "//k"
	s, _ := start(t, "", incident, incidentNamed("shop", "b"))
	for name, want := range map[string][]fieldOrigin{
		"a": {{"title", "key title"}, {"description", "earlier alert"}, {"severity", "earlier alert"}, {"dedup_key", "earlier alert"},
			{"labels", "earlier alert"}, {"custom", "earlier alert"}},
		"b": nil,
	} {
		response := s.get(t, "api/incidents/shop/"+name, nil)
		g.Expect(response.StatusCode).To(Equal(http.StatusOK))
		var shown shownIncident
		g.Expect(json.NewDecoder(response.Body).Decode(&shown)).To(Succeed())
		g.Expect(shown.Name).To(Equal(name))
		g.Expect(shown.Status.Alert.Title).To(Equal("Title of " + name))
		g.Expect(shown.Origins).To(Equal(want))
	}
}
