package page

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/action"
)

const (
	// maxActionBytes and maxActionIncidents bound one request for an action. The page splits longer ones.
	maxActionBytes     = 256 << 10
	maxActionIncidents = 500
)

// actions are those that a request may name.
var actions = map[string]struct {
	status      v1alpha1.AlertStatus
	least, most time.Duration // of its length; 0: it has none
	problem     string        // with any other length
}{
	"ack": {v1alpha1.AlertAcknowledged, time.Minute, v1alpha1.MaxAcknowledgement,
		"an acknowledgement lasts from 1m to 30d, such as 4h"},
	"unack": {status: v1alpha1.AlertUnacknowledged}, "note": {status: v1alpha1.AlertNoted}, "reopen": {status: v1alpha1.AlertFiring},
	"assign": {status: v1alpha1.AlertAssigned}, "unassign": {status: v1alpha1.AlertUnassigned},
	"resolve":   {status: v1alpha1.AlertResolved},
	"silence":   {v1alpha1.AlertSilenced, 1, v1alpha1.MaxSilence, "a silence needs a duration such as 90m, 12h or 7d; at most 30d"},
	"unsilence": {status: v1alpha1.AlertSilenced},
}

type actionRequest struct {
	Action    string            `json:"action"`
	Comment   string            `json:"comment"`
	For       string            `json:"for"` // how long it lasts
	To        string            `json:"to"`  // of an assignment; empty: the user
	Incidents []incidentAddress `json:"incidents"`
}

type incidentAddress struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Results of an action; others say why an Incident needs none.
const (
	resultRequested = "requested"
	resultDone      = "done"
)

// actionResult is a line of the answer about one Incident. The last one counts.
type actionResult struct {
	incidentAddress
	Result string `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

func (q *actionRequest) action() (a action.Action, err error) {
	chosen := actions[q.Action]
	a = action.Action{Status: chosen.status, Message: q.Comment, Assignee: q.To}
	length, failed := model.ParseDuration(q.For)
	switch {
	case a.Status == "":
		return a, badRequest("the action must be ack, unack, assign, unassign, note, silence, unsilence, resolve or reopen")
	case utf8.RuneCountInString(q.Comment) > v1alpha1.MaxCommentChars:
		return a, badRequest("the comment has more than %d characters", v1alpha1.MaxCommentChars)
	case a.CheckAssignee() != nil:
		return a, badRequest("%s", a.CheckAssignee())
	case q.Action == "note" && q.Comment == "":
		return a, badRequest("a note needs a text")
	case len(q.Incidents) == 0 || len(q.Incidents) > maxActionIncidents:
		return a, badRequest("the action needs 1 to %d incidents", maxActionIncidents)
	case chosen.most == 0 || q.Action == "ack" && q.For == "":
		return a, nil
	}
	a.Length = time.Duration(length)
	if failed != nil || a.Length < chosen.least || a.Length > chosen.most {
		return a, badRequest("%s", chosen.problem)
	}
	return a, nil
}

// act does an action to Incidents, and answers with lines about each. The API server decides what the user may do.
func (s *Server) act(w http.ResponseWriter, r *http.Request, who *caller) error {
	var q actionRequest
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxActionBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&q); err != nil {
		code := http.StatusBadRequest
		if errors.As(err, new(*http.MaxBytesError)) {
			code = http.StatusRequestEntityTooLarge
		}
		w.Header().Set("Connection", "close")
		return statusError{code, "the body is not an action, or is too long or too slow"}
	}
	a, err := q.action()
	if err != nil {
		return err
	}
	answer, effect := newLines(w), a.Effect()
	request := func(_ http.ResponseWriter, r *http.Request, who *caller) error {
		return request(r.Context(), who.client, a, effect, q.Incidents, answer)
	}
	if err := s.limited(request)(w, r, who); err != nil {
		return err
	}
	s.await(r.Context(), who, effect, answer)
	return nil
}

// sayResult sends a line about an Incident, and reports whether the browser still listens.
func sayResult(answer *lines, address incidentAddress, result string, err error) bool {
	line := actionResult{incidentAddress: address}
	if err != nil {
		_, line.Error = problemOf(err)
	} else {
		line.Result = result
	}
	return answer.send(line)
}

// request requests an action for Incidents.
func request(
	ctx context.Context, c client.Client, a action.Action, effect action.Effect, addresses []incidentAddress, answer *lines,
) error {
	brief, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	user, err := action.User(brief, c)
	if err != nil {
		return err
	}
	a.Assignee = cmp.Or(a.Assignee, user)
	for _, address := range addresses {
		result, err := actOn(ctx, c, a, effect, address, user)
		if !sayResult(answer, address, result, err) {
			break
		}
	}
	return nil
}

// actOn does an action to one Incident, and returns what was done.
func actOn(
	ctx context.Context, c client.Client, a action.Action, effect action.Effect, address incidentAddress, user string,
) (result string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	incident := &v1alpha1.Incident{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: address.Namespace, Name: address.Name}, incident); err != nil {
		return "", err
	}
	if unneeded := a.Unneeded(incident); unneeded != "" {
		return unneeded, nil
	}
	if err := effect.Check(ctx, c, incident); err != nil {
		return "", err
	}
	if err = c.Create(ctx, a.Event(incident, user), action.FieldManager); err == nil {
		effect.Add(incident)
	}
	return resultRequested, err
}

// await waits for the effect on the Incidents that were added to it. It reads them from the watch of the user, who is not told
// the effect without one. No limit of requests counts this one any more, so it awaits all at once.
func (s *Server) await(ctx context.Context, who *caller, effect action.Effect, answer *lines) {
	if effect.IsEmpty() {
		return
	}
	watched, err := s.access.join(ctx, who)
	if err != nil {
		return
	}
	defer watched.leave()
	effect.Await(ctx, watched.feed, func(before *v1alpha1.Incident, problem error) bool {
		return sayResult(answer, incidentAddress{before.Namespace, before.Name}, resultDone, problem)
	})
}
