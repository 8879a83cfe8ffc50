package page

import (
	"context"
	"net/http"

	"github.com/tocsin-dev/tocsin/internal/live"
)

// maxHeartbeats bounds the heartbeats that the page lists: those first about which something is to be done.
const maxHeartbeats = 1000

type heartbeatList struct {
	Tally      string           `json:"tally"` // of all
	Total      int              `json:"total"`
	Heartbeats []live.Heartbeat `json:"heartbeats"`
	// NotFolded says of which integrations alerts do not become Incidents; empty if all do. It is nil unless the request asks, and
	// if the user may not list integrations.
	NotFolded *string `json:"notFolded,omitempty"`
}

func (s *Server) heartbeats(w http.ResponseWriter, r *http.Request, who *caller) error {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	all, err := live.Heartbeats(ctx, who.client, who.namespace)
	if err != nil {
		return err
	}
	answer := heartbeatList{
		Tally: live.TallyHeartbeats(all), Total: len(all), Heartbeats: all[:min(len(all), maxHeartbeats)],
	}
	if r.URL.Query().Has("folded") {
		if why, err := live.NotFolded(ctx, who.client, who.namespace, nil); err == nil {
			answer.NotFolded = &why
		}
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}
