package forward

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
	"github.com/tocsin-dev/tocsin/controllers/forward/config"
)

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
	wanted   alerts.Wanted
	alerts   []json.RawMessage
	size     int // of the alerts
}

// prepare makes the alerts of an Incident. It returns nil if nothing is to be posted: it cannot be read, and the next round tries
// again, or Alertmanager neither is to know the Incident nor has known it.
func (p *poster) prepare(ctx context.Context, at occasion, key types.NamespacedName, received time.Time) *post {
	incident, integration, err := p.incidents.read(ctx, key)
	if err != nil {
		p.log.Error(err, "Incident cannot be posted", "namespace", key.Namespace, "incident", key.Name)
		return nil
	}
	wanted := at.target.Want(incident, integration, p.windows.Of(integration), at.now)
	// Without the integration, a set that fires is neither renewed nor ended, so nothing changes if the integration is created
	// again within the expiry; otherwise the set ends with it.
	stays := integration == nil && incident != nil &&
		(incident.Status.State == v1alpha1.IncidentOpen || fold.KeepsFiring(&incident.Status, at.now))
	if !stays {
		wanted = p.withHistory(ctx, at, key, wanted)
	}
	if wanted.IsEmpty() {
		p.record.accept(key, "")
		return nil
	}
	one := &post{key: key, received: received, wanted: wanted}
	for _, alert := range alerts.Make(key, incident, wanted, at.target.Settings, at.now, at.ahead) {
		data, _ := json.Marshal(alert) // strings and times always encode
		one.alerts, one.size = append(one.alerts, data), one.size+len(data)
	}
	return one
}

// withHistory adds what was posted about the Incident before and must now end, and keeps labels that may not change. Only
// Alertmanager has the labels with which an earlier leader posted an Incident that is muted now. They are read once in a term;
// without an answer, the Incident has its current labels.
func (p *poster) withHistory(
	ctx context.Context, at occasion, key types.NamespacedName, wanted alerts.Wanted,
) alerts.Wanted {
	if at.client != nil && !p.hasFormer && p.record.needsFormer(key, wanted) {
		p.hasFormer = true
		p.readFormer(ctx, at.client)
	}
	return p.record.extend(key, wanted, at.target.Settings, at.now)
}

// readFormer records with which labels Alertmanager knows Incidents that may be muted.
func (p *poster) readFormer(ctx context.Context, client *alertmanager.Client) {
	err := client.Labels(ctx, func(labels map[string]string) {
		if key, severity := alerts.IncidentOf(labels); p.incidents.mayBeMuted(key, severity) {
			p.record.addFormer(key, labels)
		}
	})
	if err != nil {
		p.log.Info("Labels of muted Incidents cannot be read from Alertmanager; the current ones are used", "reason", err.Error())
	}
}
