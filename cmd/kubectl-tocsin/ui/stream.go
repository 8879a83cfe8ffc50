package ui

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/live"
)

const (
	// settle is how long changes are gathered before they are sent.
	settle = 200 * time.Millisecond
	// heartbeat is the interval of messages without changes, so that the browser notices a lost connection.
	heartbeat = 2 * time.Second
)

// message is one line of the stream.
type message struct {
	// Whole means that Rows are all rows; otherwise they are the changed rows.
	Whole bool  `json:"whole,omitempty"`
	Rows  []row `json:"rows,omitempty"`
	// Synced is false until the initial list is complete.
	Synced bool `json:"synced"`
	// Problem is the reason why the rows may be out of date.
	Problem string `json:"problem,omitempty"`
	// Age is the time in seconds since the API server confirmed that the rows are up to date.
	Age float64 `json:"age"`
	// Scope is the namespace; empty for all.
	Scope string `json:"scope"`
	// Command is the beginning of a command line for the same cluster.
	Command string `json:"command"`
}

// stream sends all rows, and then changed rows, as lines of JSON until the browser disconnects.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	control, encoder := http.NewResponseController(w), json.NewEncoder(w)
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	var sequence uint64
	for {
		// Read Synced before the rows: if it is true, they are complete.
		synced := s.feed.Synced()
		rows, next, whole, changed := s.board.since(sequence)
		sequence = next
		m := message{Whole: whole, Rows: rows, Synced: synced, Scope: s.namespace, Command: s.command, Age: s.feed.Age().Seconds()}
		if problem := s.feed.Problem(); problem != nil {
			m.Problem = live.Sentence(problem)
		}
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not all writers support it
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
