package forward

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
	"github.com/tocsin-dev/tocsin/controllers/forward/config"
)

// stage is a step from an Incident to its alerts in an Alertmanager. It fills in its part of the post, and reports false if
// nothing is to be posted.
type stage interface {
	fill(ctx context.Context, at moment, p *post) bool
}

// moment is what the posts of a request have in common.
type moment struct {
	target   *config.Target
	client   *alertmanager.Client // nil: http_config cannot be used
	now      time.Time            // by the API server's clock
	ahead    time.Duration        // how far the Alertmanager's clock is ahead of that
	deadline time.Time            // until when requests are split, see splitter
}

// post is what is posted about one Incident.
type post struct {
	key      types.NamespacedName
	received time.Time // see incidentQueue

	// readStage: nil if there is none.
	incident    *v1alpha1.Incident
	integration *v1alpha1.WebhookIntegration

	// wantStage and historyStage.
	wanted alerts.Wanted

	// encodeStage.
	alerts []json.RawMessage
	size   int // of the alerts
}
