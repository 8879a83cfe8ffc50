package forward

import (
	"context"

	"github.com/go-logr/logr"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
)

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
func (h *historyStage) fill(ctx context.Context, at moment, p *post) bool {
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
