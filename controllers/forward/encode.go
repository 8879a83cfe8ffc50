package forward

import (
	"context"
	"encoding/json"

	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
)

// encodeStage makes the alerts of the Incident. There are none if Alertmanager neither is to know the Incident nor has known it.
type encodeStage struct{ record *record }

// fill implements stage.
func (e *encodeStage) fill(_ context.Context, at moment, p *post) bool {
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
