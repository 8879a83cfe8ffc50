package forward

import (
	"context"

	"github.com/tocsin-dev/tocsin/internal/maintenance"
)

// wantStage decides what Alertmanager is to know of the Incident by its status.
type wantStage struct{ windows *maintenance.Windows }

// fill implements stage.
func (w *wantStage) fill(_ context.Context, at moment, p *post) bool {
	p.wanted = at.target.Want(p.incident, p.integration, w.windows.Of(p.integration), at.now)
	return true
}
