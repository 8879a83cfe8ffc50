package page

import (
	"context"
	"net/http"

	"github.com/tocsin-dev/tocsin/internal/heartbeats/states"
	"github.com/tocsin-dev/tocsin/internal/live"
)

// maxParts bounds the objects of a feature that the page lists: those first about which something is to be done.
const maxParts = 1000

// features are those whose objects the page lists.
var features = []live.Feature{states.Heartbeats{}}

type partList struct {
	Tally string      `json:"tally"` // of all
	Total int         `json:"total"`
	Parts []live.Part `json:"heartbeats"`
	// NotFolded says of which integrations alerts do not become Incidents; empty if all do. It is nil unless the request asks, and
	// if the user may not list integrations.
	NotFolded *string `json:"notFolded,omitempty"`
}

// parts returns what answers a request for the objects of a feature.
func parts(f live.Feature) endpoint {
	return func(w http.ResponseWriter, r *http.Request, who *caller) error {
		ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
		defer cancel()
		all, err := f.List(ctx, who.client, who.namespace)
		if err != nil {
			return err
		}
		answer := partList{Tally: f.Tally(all), Total: len(all), Parts: all[:min(len(all), maxParts)]}
		if r.URL.Query().Has("folded") {
			if why, err := live.NotFolded(ctx, who.client, who.namespace, nil); err == nil {
				answer.NotFolded = &why
			}
		}
		writeJSON(w, http.StatusOK, answer)
		return nil
	}
}
