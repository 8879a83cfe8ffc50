package cli

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/live"
)

// notFolded says of which selected integrations alerts do not become Incidents, and why; empty if all do. A user who may not list
// integrations gets a warning.
func (p *plugin) notFolded(ctx context.Context, c *cluster, f *filter) (string, error) {
	why, err := live.NotFolded(ctx, c, f.namespace(c), f.Integrations)
	if apierrors.IsForbidden(err) {
		p.notef("Warning: cannot verify that alerts become incidents: permission denied")
		return "", nil
	}
	return why, err
}

// warnIfNotFolded prints a warning if no open Incident was found, and alerts do not become Incidents.
func (p *plugin) warnIfNotFolded(ctx context.Context, c *cluster, f *filter, found []*v1alpha1.Incident) {
	if len(found) > 0 || !f.wants(v1alpha1.IncidentOpen) {
		return
	}
	why, err := p.notFolded(ctx, c, f)
	switch {
	case err != nil:
		p.notef("Warning: cannot verify that alerts become incidents: %s", live.Sentence(err))
	case why != "":
		p.notef("Warning: %s", why)
	}
}
