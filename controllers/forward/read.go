package forward

import (
	"context"

	"github.com/go-logr/logr"
)

// readStage reads the Incident and its integration. If that fails, the next round tries again.
type readStage struct {
	incidents *incidents
	log       logr.Logger
}

// fill implements stage.
func (r *readStage) fill(ctx context.Context, _ moment, p *post) bool {
	var err error
	if p.incident, p.integration, err = r.incidents.read(ctx, p.key); err != nil {
		r.log.Error(err, "Incident cannot be posted", "namespace", p.key.Namespace, "incident", p.key.Name)
	}
	return err == nil
}
