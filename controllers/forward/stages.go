package forward

import (
	"context"
	"encoding/json"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
	"github.com/tocsin-dev/tocsin/controllers/forward/config"
	"github.com/tocsin-dev/tocsin/internal/maintenance"
)

// stage is a step from an Incident to its alerts in an Alertmanager. It fills in its part of the post, and reports false if
// nothing is to be posted.
type stage interface {
	fill(ctx context.Context, at occasion, p *post) bool
}

// occasion is what the posts of a request have in common.
type occasion struct {
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

// readStage reads the Incident and its integration. If that fails, the next round tries again.
type readStage struct {
	incidents *incidents
	log       logr.Logger
}

// fill implements stage.
func (r *readStage) fill(ctx context.Context, _ occasion, p *post) bool {
	var err error
	if p.incident, p.integration, err = r.incidents.read(ctx, p.key); err != nil {
		r.log.Error(err, "Incident cannot be posted", "namespace", p.key.Namespace, "incident", p.key.Name)
	}
	return err == nil
}

// wantStage decides what Alertmanager is to know of the Incident by its status.
type wantStage struct{ windows *maintenance.Windows }

// fill implements stage.
func (w *wantStage) fill(_ context.Context, at occasion, p *post) bool {
	p.wanted = at.target.Want(p.incident, p.integration, w.windows.Of(p.integration), at.now)
	return true
}

// historyStage adds what was posted about the Incident before and must now end, and keeps labels that may not change. Only
// Alertmanager has the labels with which an earlier leader posted an Incident that is muted now. They are read once in a term;
// without an answer, the Incident has its current labels.
type historyStage struct {
	incidents *incidents
	record    *record
	log       logr.Logger
	hasFormer bool // they were read, or could not be
}

// fill implements stage.
func (h *historyStage) fill(ctx context.Context, at occasion, p *post) bool {
	// Without the integration, a set that fires is neither renewed nor ended, so nothing changes if the integration is created
	// again within the expiry; otherwise the set ends with it.
	if p.integration == nil && p.incident != nil &&
		(p.incident.Status.State == v1alpha1.IncidentOpen || fold.KeepsFiring(&p.incident.Status, at.now)) {
		return true
	}
	if at.client != nil && !h.hasFormer && h.record.needsFormer(p.key, p.wanted) {
		h.hasFormer = true
		h.readFormer(ctx, at.client)
	}
	p.wanted = h.record.extend(p.key, p.wanted, at.target.Settings, at.now)
	return true
}

// readFormer records with which labels Alertmanager knows Incidents that may be muted.
func (h *historyStage) readFormer(ctx context.Context, client *alertmanager.Client) {
	err := client.Labels(ctx, func(labels map[string]string) {
		if key, severity := alerts.IncidentOf(labels); h.incidents.mayBeMuted(key, severity) {
			h.record.addFormer(key, labels)
		}
	})
	if err != nil {
		h.log.Info("Labels of muted Incidents cannot be read from Alertmanager; the current ones are used", "reason", err.Error())
	}
}

// encodeStage makes the alerts of the Incident. There are none if Alertmanager neither is to know the Incident nor has known it.
type encodeStage struct{ record *record }

// fill implements stage.
func (e *encodeStage) fill(_ context.Context, at occasion, p *post) bool {
	if p.wanted.IsEmpty() {
		e.record.accept(p.key, "")
		return false
	}
	for _, alert := range alerts.Make(p.key, p.incident, p.wanted, at.target.Settings, at.now, at.ahead) {
		data, _ := json.Marshal(alert) // strings and times always encode
		p.alerts, p.size = append(p.alerts, data), p.size+len(data)
	}
	return true
}
