package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/action"
)

const (
	// maxActionBytes and maxActionIncidents bound one request for an action. The page splits longer ones.
	maxActionBytes     = 256 << 10
	maxActionIncidents = 500
	// bodyTimeout bounds the time in which a body is read.
	bodyTimeout = 10 * time.Second
)

// actionStatus has the status of the alerts that each action creates.
var actionStatus = map[string]v1alpha1.AlertStatus{
	"ack": v1alpha1.AlertAcknowledged, "unack": v1alpha1.AlertUnacknowledged, "note": v1alpha1.AlertNoted,
	"silence": v1alpha1.AlertSilenced, "unsilence": v1alpha1.AlertSilenced, "resolve": v1alpha1.AlertResolved,
}

type actionRequest struct {
	Action    string            `json:"action"`
	Comment   string            `json:"comment"`
	For       string            `json:"for"`
	Incidents []incidentAddress `json:"incidents"`
}

type incidentAddress struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// actionResult is the line of the answer about one Incident.
type actionResult struct {
	incidentAddress
	Result string `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

// action returns the action of a request.
func (q *actionRequest) action() (a action.Action, err error) {
	a = action.Action{Status: actionStatus[q.Action], Message: q.Comment}
	switch {
	case a.Status == "":
		return a, errors.New("the action must be ack, unack, note, silence, unsilence or resolve")
	case utf8.RuneCountInString(q.Comment) > v1alpha1.MaxCommentChars:
		return a, fmt.Errorf("the comment has more than %d characters", v1alpha1.MaxCommentChars)
	case q.Action == "note" && q.Comment == "":
		return a, errors.New("a note needs a text")
	case len(q.Incidents) == 0 || len(q.Incidents) > maxActionIncidents:
		return a, fmt.Errorf("the action needs 1 to %d incidents", maxActionIncidents)
	}
	if q.Action == "silence" {
		length, err := model.ParseDuration(q.For)
		if err != nil || length <= 0 || time.Duration(length) > v1alpha1.MaxSilence {
			return a, errors.New("a silence needs a duration such as 90m, 12h or 7d; at most 30d")
		}
		a.Length = time.Duration(length)
	}
	return a, nil
}

// act does an action to Incidents, and answers with a line for each. The API server decides what the user may do.
func (s *Server) act(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // not all writers support it
	var q actionRequest
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxActionBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&q); err != nil {
		code := http.StatusBadRequest
		if errors.As(err, new(*http.MaxBytesError)) {
			code = http.StatusRequestEntityTooLarge
		}
		w.Header().Set("Connection", "close")
		writeError(w, code, errors.New("the body is not an action, or is too long or too slow"))
		return
	}
	_ = control.SetReadDeadline(time.Time{})
	a, err := q.action()
	if err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	c := s.callerOf(r).client
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	user, err := action.User(ctx, c)
	if err != nil {
		s.writeProblem(w, err)
		return
	}
	answer := newLines(w)
	for _, address := range q.Incidents {
		result := actionResult{incidentAddress: address}
		if result.Result, err = actOn(r.Context(), c, a, address, user); err != nil {
			_, result.Error = problemOf(err)
		}
		if !answer.send(result) {
			return
		}
	}
}

// actOn does an action to one Incident, and describes what it did.
func actOn(ctx context.Context, c client.Client, a action.Action, address incidentAddress, user string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	incident := &v1alpha1.Incident{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: address.Namespace, Name: address.Name}, incident); err != nil {
		return "", err
	}
	needsOpen := a.Status == v1alpha1.AlertAcknowledged || a.Status == v1alpha1.AlertUnacknowledged
	if needsOpen && incident.Status.State == v1alpha1.IncidentResolved {
		return "already resolved", nil
	}
	if unneeded := a.Unneeded(incident); unneeded != "" {
		return unneeded, nil
	}
	return "requested", c.Create(ctx, a.Event(incident, user), action.FieldManager)
}
