package page

import (
	"context"
	"net/http"

	"github.com/tocsin-dev/tocsin/internal/live"
)

// maxHeartbeats bounds the heartbeats that the page lists: those first about which something is to be done.
const maxHeartbeats = 1000

// heartbeatList is the answer of /api/heartbeats.
type heartbeatList struct {
	Tally      string           `json:"tally"` // of all
	Total      int              `json:"total"`
	Heartbeats []live.Heartbeat `json:"heartbeats"`
}

// heartbeats lists the heartbeats of the namespace that the page shows.
func (s *Server) heartbeats(w http.ResponseWriter, r *http.Request, who *caller) error {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	all, err := live.Heartbeats(ctx, who.client, who.namespace)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, heartbeatList{
		Tally: live.TallyHeartbeats(all), Total: len(all), Heartbeats: all[:min(len(all), maxHeartbeats)],
	})
	return nil
}
