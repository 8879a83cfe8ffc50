package heartbeat

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/webhookserver/feature"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// maxListedBeats is how many heartbeats an answer names.
const maxListedBeats = 20

// outcomes are the values of a ping's parameter status, and whether they are failures.
var outcomes = map[string]bool{"": false, "ok": false, "up": false, "failed": true, "down": true}

var (
	unknown = protocol.Problem{Type: "unknown-heartbeat", Status: http.StatusNotFound, Title: "There is no such heartbeat",
		Reason: "UnknownHeartbeat"}
	invalidOutcome = protocol.InvalidParameter.WithDetail(
		"The outcome is neither ok nor failed, nor an exit code from 0 to 255. Nothing was stored.")
	invalidParameter = protocol.InvalidParameter.WithDetail(
		"A ping has no such parameter. It reports an outcome by status=ok or status=failed, and an exit code by the end of the path, " +
			"/heartbeat/NAME/1. Nothing was stored.")
)

// pong is the body of the answer to a ping.
type pong struct {
	Status    string `json:"status"`
	Heartbeat string `json:"heartbeat"`
	Failed    bool   `json:"failed,omitempty"`
	Started   bool   `json:"started,omitempty"`
}

// routes are Tocsin's own pings, and those of Opsgenie's Heartbeat API.
var routes = protocol.NewRoutes([]protocol.Operation{
	{Path: "/heartbeat/{identifier}", Methods: []string{http.MethodGet, http.MethodHead, http.MethodPost}},
	{
		Path:     "/v2/heartbeats/{identifier}/ping",
		Methods:  []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch},
		Accepted: opsgenieHeard, Rejected: protocol.OpsgenieRejected,
	},
})

// Routes returns the pings.
func (*Listener) Routes() protocol.Routes { return routes }

// opsgenieHeard answers a ping as Opsgenie does (https://docs.opsgenie.com/docs/heartbeat-api#ping-heartbeat-request).
func opsgenieHeard(stored protocol.Stored) protocol.Reply {
	return protocol.OpsgenieReply("PONG - Heartbeat received", "heartbeat", stored.Took)
}

// Answer takes a ping of a heartbeat to its answer. One that reports a failure is in the status of the heartbeat before.
func (l *Listener) Answer(r *feature.Request) (answer feature.Answer, p *protocol.Problem) {
	name, end, _ := strings.Cut(strings.TrimSuffix(r.Identifier, "/"), "/")
	if strings.Contains(end, "/") {
		return answer, &protocol.NotFound
	}
	heard := Signal{Time: r.Received}
	if heard.Heartbeat, p = l.findPing(r.Integration, name); p != nil {
		return answer, p
	}
	if heard.Kind, heard.Exit, p = outcome(r, end); p != nil {
		return answer, p
	}
	failed := heard.Kind == v1alpha1.SignalFailure
	body := &pong{Status: "accepted", Heartbeat: name, Failed: failed, Started: heard.Kind == v1alpha1.SignalStart}
	status := http.StatusOK
	switch {
	case r.DryRun:
		body.Status = "dryRun"
	case failed:
		status = http.StatusAccepted
	}
	return feature.Answer{Reply: protocol.Reply{Status: status, Body: body}, Report: heard, Urgent: failed}, nil
}

// pingParameters are those that clients add to every ping and that say nothing of its outcome: of Uptime Kuma's push monitors,
// and the run of Healthchecks' clients.
var pingParameters = []string{"msg", "ping", "rid"}

// startPath is the end of the path of a ping that reports a start.
const startPath = "start"

// outcome says what a ping reports, by the end of its path, which may be an exit code, or its parameter status. A parameter that
// is not known may have been meant to report a failure.
func outcome(r *feature.Request, end string) (kind v1alpha1.SignalKind, exit int64, p *protocol.Problem) {
	given, failed := false, false
	for name, value := range r.Parameters {
		switch {
		case name == "status":
			outcome, known := outcomes[strings.ToLower(value)]
			if !known || given && outcome != failed {
				return kind, 0, invalidOutcome
			}
			given, failed = true, outcome
		case !strings.EqualFold(name, protocol.DryRunParameter) && !slices.Contains(pingParameters, name):
			return kind, 0, invalidParameter
		}
	}
	if end == startPath {
		if given {
			return kind, 0, invalidOutcome
		}
		return v1alpha1.SignalStart, 0, nil
	}
	parsed, err := strconv.ParseUint(cmp.Or(end, "0"), 10, 8)
	switch {
	case err != nil:
		return kind, 0, invalidOutcome
	case failed || parsed > 0:
		return v1alpha1.SignalFailure, int64(parsed), nil
	}
	return v1alpha1.SignalSuccess, 0, nil
}

// findPing returns the heartbeat that is pinged under a name, or else the problem that lists those that are.
func (l *Listener) findPing(integration types.NamespacedName, name string) (*v1alpha1.Heartbeat, *protocol.Problem) {
	var names []string
	for _, beat := range l.Of(integration) {
		if !beat.IsPing() {
			continue
		}
		if beat.Name == name {
			return beat, nil
		}
		names = append(names, beat.Name)
	}
	if len(names) == 0 {
		return nil, unknown.WithDetail("The integration has no Heartbeat without spec.match.")
	}
	return nil, unknown.WithDetail(
		"These Heartbeats of the integration are pinged: " + plaintext.Few(names, maxListedBeats) + ".")
}
