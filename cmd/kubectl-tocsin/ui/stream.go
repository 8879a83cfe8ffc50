package ui

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/live"
)

const (
	// settle is how long a burst of changes is gathered.
	settle = 200 * time.Millisecond
	// heartbeat is how often a browser hears something when nothing happens, so that it notices an end.
	heartbeat = 2 * time.Second
)

// message is one line of the stream.
type message struct {
	// Whole says that Rows are all there are; otherwise they are what changed.
	Whole bool  `json:"whole,omitempty"`
	Rows  []row `json:"rows,omitempty"`
	// Synced is false while the first list is under way.
	Synced bool `json:"synced"`
	// Problem says why the rows may be out of date, as part of a sentence.
	Problem string `json:"problem,omitempty"`
	// Age is how many seconds ago the API server confirmed that the rows are up to date.
	Age float64 `json:"age"`
	// Scope is the namespace that is looked at; empty for all.
	Scope string `json:"scope"`
	// Command is the beginning of a command line for the same cluster.
	Command string `json:"command"`
}

// stream sends all rows, and then what changes, as lines of JSON, until the browser hangs up.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	control, encoder := http.NewResponseController(w), json.NewEncoder(w)
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	var sequence uint64
	for {
		// Asked first: once it is synced, the rows are all there.
		synced := s.feed.Synced()
		rows, next, whole, changed := s.board.since(sequence)
		sequence = next
		m := message{Whole: whole, Rows: rows, Synced: synced, Scope: s.namespace, Command: s.command, Age: s.feed.Age().Seconds()}
		if problem := s.feed.Problem(); problem != nil {
			m.Problem = live.Sentence(problem)
		}
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not all writers have one
		if encoder.Encode(m) != nil || control.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
		case <-changed:
			select {
			case <-r.Context().Done():
				return
			case <-time.After(settle):
			}
		}
	}
}
