package page

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// maxOriginChars bounds an origin, which may have an expression in it.
const maxOriginChars = 300

type shownIncident struct {
	*v1alpha1.Incident
	Origins []fieldOrigin `json:"origins,omitempty"`
}

// fieldOrigin says which key, expression or default gave a field.
type fieldOrigin struct {
	Field  string `json:"field"`
	Origin string `json:"origin"`
}

// originsOf explains the fields of an Incident by what is stored with it; nil if nothing is. The expressions of a mapping are in
// the integration, which not every user may read.
func originsOf(ctx context.Context, c client.Reader, incident *v1alpha1.Incident) (origins []fieldOrigin) {
	explained, _ := mapping.Explain(incident, nil)
	isOfMapping := func(s mapping.Source) bool { return s.From == mapping.FromMapping }
	isReadable := true
	if slices.ContainsFunc(explained.Sources, isOfMapping) {
		integration := &v1alpha1.WebhookIntegration{}
		err := c.Get(ctx, client.ObjectKey{Namespace: incident.Namespace, Name: incident.Spec.IntegrationName}, integration)
		explained, _ = mapping.Explain(incident, integration.Spec.Mapping)
		isReadable = err == nil || apierrors.IsNotFound(err)
	}
	for _, source := range explained.Sources {
		if isOfMapping(source) && !isReadable {
			source.Changed = false // it is not known
		}
		text := firstChars(plaintext.SanitizeLine(source.String()), maxOriginChars)
		origins = append(origins, fieldOrigin{source.Field, text})
	}
	return origins
}
