package webhookserver

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// signal says that a heartbeat was heard.
type signal struct {
	heartbeat *v1alpha1.Heartbeat // as the cache has it
	kind      v1alpha1.SignalKind
	time      time.Time // by the API server's clock
	exit      int64     // the exit code of a failure, 0 if the sender gave none
}

// outcomes are the values of a ping's parameter status, and whether they are failures.
var outcomes = map[string]bool{"": false, "ok": false, "up": false, "failed": true, "down": true}

// pong is the body of the answer to a ping.
type pong struct {
	Status    string `json:"status"`
	Heartbeat string `json:"heartbeat"`
	Failed    bool   `json:"failed,omitempty"`
	Started   bool   `json:"started,omitempty"`
}

// findSignals finds the alerts that are signals of heartbeats. They are not stored.
func (d *decoded) findSignals(all []*v1alpha1.Heartbeat) {
	d.beats = make([]string, len(d.Alerts))
	for _, h := range all {
		for a := range d.Alerts {
			if isSignal(h, &d.Alerts[a]) {
				d.beats[a] = h.Name // of several with the same key the last one; noteSignals notes them all
			}
		}
	}
}

// isSignal reports whether an alert is a signal of a heartbeat that is matched by its key.
func isSignal(h *v1alpha1.Heartbeat, alert *mapping.Alert) bool {
	match := h.Spec.Match
	return match != nil && match.DedupKey != "" && alert.DedupKey == match.DedupKey &&
		alert.Status == v1alpha1.AlertFiring && !alert.Dropped
}

// heartbeats returns those of the request's integration.
func (h *handler) heartbeats(a *authenticated) []*v1alpha1.Heartbeat {
	return h.options.Heartbeats.Of(a.integrationName())
}

// noteSignals notes the signals in a request that was accepted whole, or whose valid part was: then only alerts are signals, not
// the request.
func (h *handler) noteSignals(c *checked, alerts []mapping.Alert, whole bool) {
	if c.dryRun {
		return
	}
	for _, beat := range h.heartbeats(c.authenticated) {
		if beat.IsAnyRequest() && whole ||
			slices.ContainsFunc(alerts, func(alert mapping.Alert) bool { return isSignal(beat, &alert) }) {
			h.reports.reportSignal(signal{heartbeat: beat, kind: v1alpha1.SignalSuccess, time: h.options.Health.APITime()})
		}
	}
}

// ping takes a ping of a heartbeat to its answer. One that reports a failure is in the status of the heartbeat before.
func (h *handler) ping(c *checked) (reply protocol.Reply, p *problem) {
	name, end, _ := strings.Cut(strings.TrimSuffix(c.identifier, "/"), "/")
	if strings.Contains(end, "/") {
		return reply, &problemNotFound
	}
	beat, p := h.findPing(c.authenticated, name)
	if p != nil {
		return reply, p
	}
	heard := signal{heartbeat: beat, time: c.received}
	if heard.kind, heard.exit, p = c.outcome(end); p != nil {
		return reply, p
	}
	failed := heard.kind == v1alpha1.SignalFailure
	answer := &pong{Status: "accepted", Heartbeat: name, Failed: failed, Started: heard.kind == v1alpha1.SignalStart}
	status := http.StatusOK
	switch {
	case c.dryRun:
		answer.Status = "dryRun"
		return protocol.Reply{Status: status, Body: answer}, nil
	case failed:
		if p = h.writeFailure(c.authenticated, heard); p != nil {
			return reply, p
		}
		status = http.StatusAccepted
	default:
		h.reports.reportSignal(heard)
	}
	h.noteSignals(c, nil, true)
	took := h.options.Clock.Now().Sub(c.start)
	if c.operation.Accepted != nil {
		return c.operation.Accepted(protocol.Stored{Integration: c.integration.Name, Took: took}), nil
	}
	return protocol.Reply{Status: status, Body: answer}, nil
}

// writeFailure has the status say that a heartbeat has failed. The leader stores the alert.
func (h *handler) writeFailure(a *authenticated, failed signal) *problem {
	memory := h.bodies.Reserve(a.integrationName(), minBodyMemory, 0)
	if memory == nil {
		return &problemOverload
	}
	defer memory.Release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.Context()), commit.Timeout)
	defer cancel()
	if err := h.reports.writeFailure(ctx, failed); err != nil {
		return problemUnavailable.withDetail("The Kubernetes API server did not accept the failure in time; try again.").causedBy(err)
	}
	return nil
}

// pingParameters are those that clients add to every ping and that say nothing of its outcome: of Uptime Kuma's push monitors,
// and the run of Healthchecks' clients.
var pingParameters = []string{"msg", "ping", "rid"}

// startPath is the end of the path of a ping that reports a start.
const startPath = "start"

// outcome says what a ping reports, by the end of its path, which may be an exit code, or its parameter status. A parameter that
// is not known may have been meant to report a failure.
func (a *arrived) outcome(end string) (kind v1alpha1.SignalKind, exit int64, p *problem) {
	given, failed := false, false
	for name, value := range a.queryParts() {
		switch {
		case name == "status":
			outcome, known := outcomes[strings.ToLower(value)]
			if !known || given && outcome != failed {
				return kind, 0, &problemOutcome
			}
			given, failed = true, outcome
		case !strings.EqualFold(name, dryRunParameter) && !slices.Contains(pingParameters, name):
			return kind, 0, &problemPingParameter
		}
	}
	if end == startPath {
		if given {
			return kind, 0, &problemOutcome
		}
		return v1alpha1.SignalStart, 0, nil
	}
	parsed, err := strconv.ParseUint(cmp.Or(end, "0"), 10, 8)
	switch {
	case err != nil:
		return kind, 0, &problemOutcome
	case failed || parsed > 0:
		return v1alpha1.SignalFailure, int64(parsed), nil
	}
	return v1alpha1.SignalSuccess, 0, nil
}

// findPing returns the heartbeat that is pinged under a name, or else the problem that lists those that are.
func (h *handler) findPing(a *authenticated, name string) (*v1alpha1.Heartbeat, *problem) {
	var names []string
	for _, beat := range h.heartbeats(a) {
		if !beat.IsPing() {
			continue
		}
		if beat.Name == name {
			return beat, nil
		}
		names = append(names, beat.Name)
	}
	if len(names) == 0 {
		return nil, problemHeartbeat.withDetail("The integration has no Heartbeat without spec.match.")
	}
	return nil, problemHeartbeat.withDetail(
		"These Heartbeats of the integration are pinged: " + plaintext.Few(names, maxListedBeats) + ".")
}
