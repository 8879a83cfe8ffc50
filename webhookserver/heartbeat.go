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
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// signal says that a heartbeat was heard.
type signal struct {
	heartbeat string
	time      time.Time // by the API server's clock
	failed    bool      // the sender reported a failure
	exit      int64     // the exit code of the failure, 0 if the sender gave none
}

// outcomes are the values of a ping's parameter status, and whether they are failures.
var outcomes = map[string]bool{"": false, "ok": false, "up": false, "failed": true, "down": true}

// pong is the body of the answer to a ping.
type pong struct {
	Status    string `json:"status"`
	Heartbeat string `json:"heartbeat"`
	Failed    bool   `json:"failed,omitempty"`
}

// heartbeat returns the heartbeat of which an alert is a signal, empty if it is none.
func (d *decodedAlerts) heartbeat(alert int) string {
	if d.beats == nil {
		return ""
	}
	return d.beats[alert]
}

// findSignals finds the alerts that are signals of heartbeats. They are not stored.
func (d *decodedAlerts) findSignals(integration *v1alpha1.WebhookIntegration) {
	for i := range integration.Spec.Heartbeats {
		h := &integration.Spec.Heartbeats[i]
		for a := range d.Alerts {
			if !isSignal(h, &d.Alerts[a]) {
				continue
			}
			if d.beats == nil {
				d.beats = make([]string, len(d.Alerts))
			}
			d.beats[a] = h.Name // of several with the same key the last one; hear notes them all
		}
	}
}

// isSignal reports whether an alert is a signal of a heartbeat that is matched by its key.
func isSignal(h *v1alpha1.Heartbeat, alert *mapping.Alert) bool {
	return h.Match != nil && h.Match.DedupKey != "" && alert.DedupKey == h.Match.DedupKey &&
		alert.Status == v1alpha1.AlertFiring && !alert.Dropped
}

// noteSignals notes the signals in a request that was accepted, or whose valid part was: then only alerts are signals, not the
// request.
func (h *handler) noteSignals(x *exchange, decoded *decodedAlerts) {
	if x.dryRun {
		return
	}
	accepted := decoded == nil || len(decoded.invalid) == 0
	var signals []signal
	for i := range x.integration.Spec.Heartbeats {
		beat := &x.integration.Spec.Heartbeats[i]
		if beat.Match == nil && accepted || decoded != nil &&
			slices.ContainsFunc(decoded.Alerts, func(alert mapping.Alert) bool { return isSignal(beat, &alert) }) {
			signals = append(signals, signal{heartbeat: beat.Name, time: h.options.APITime()})
		}
	}
	if len(signals) > 0 {
		h.reports.reportSignals(x.integration, signals)
	}
}

// ping takes a ping of a heartbeat to its answer. One that reports a failure is in the status of the integration before.
func (h *handler) ping(x *exchange) (reply protocol.Reply, p *problem) {
	if p = x.parseParameters(); p != nil {
		return reply, p
	}
	name, exit, _ := strings.Cut(strings.TrimSuffix(x.identifier, "/"), "/")
	if strings.Contains(exit, "/") {
		return reply, &problemNotFound
	}
	if p = findPing(x.integration, name); p != nil {
		return reply, p
	}
	failed, code, p := x.outcome(exit)
	if p != nil {
		return reply, p
	}
	heard := signal{heartbeat: name, time: x.received, failed: failed, exit: code}
	answer := &pong{Status: "accepted", Heartbeat: name, Failed: failed}
	status := http.StatusOK
	switch {
	case x.dryRun:
		answer.Status = "dryRun"
		return protocol.Reply{Status: status, Body: answer}, nil
	case failed:
		if p = h.writeFailure(x, heard); p != nil {
			return reply, p
		}
		status = http.StatusAccepted
	default:
		h.reports.reportSignals(x.integration, []signal{heard})
	}
	h.noteSignals(x, nil)
	if x.operation.Accepted != nil {
		return x.operation.Accepted(h.requestOf(x), protocol.Stored{Took: h.options.Now().Sub(x.start)}), nil
	}
	return protocol.Reply{Status: status, Body: answer}, nil
}

// writeFailure has the status say that a heartbeat has failed. The leader stores the alert.
func (h *handler) writeFailure(x *exchange, failed signal) *problem {
	memory := h.bodies.Reserve(x.sender(), minBodyMemory, 0)
	if memory == nil {
		return &problemOverload
	}
	defer memory.Release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.Context()), commit.Timeout)
	defer cancel()
	if x.cause = h.reports.writeFailure(ctx, x.integration, failed); x.cause != nil {
		return problemUnavailable.withDetail("The Kubernetes API server did not accept the failure in time; try again.")
	}
	return nil
}

// pingParameters are those that clients add to every ping and that say nothing of its outcome: of Uptime Kuma's push monitors,
// and the run of Healthchecks' clients.
var pingParameters = []string{"msg", "ping", "rid"}

// outcome says whether a ping reports a failure, by its exit code or its parameter status. A parameter that is not known may have
// been meant to.
func (x *exchange) outcome(exit string) (failed bool, code int64, p *problem) {
	given := false
	for name, value := range x.parameters() {
		switch {
		case name == "status":
			outcome, known := outcomes[strings.ToLower(value)]
			if !known || given && outcome != failed {
				return false, 0, &problemOutcome
			}
			given, failed = true, outcome
		case !strings.EqualFold(name, dryRunParameter) && !slices.Contains(pingParameters, name):
			return false, 0, &problemPingParameter
		}
	}
	parsed, err := strconv.ParseUint(cmp.Or(exit, "0"), 10, 8)
	if err != nil {
		return false, 0, &problemOutcome
	}
	return failed || parsed > 0, int64(parsed), nil
}

// findPing returns nil if a heartbeat is pinged under a name, or else the problem that lists those that are.
func findPing(integration *v1alpha1.WebhookIntegration, name string) *problem {
	var names []string
	for i := range integration.Spec.Heartbeats {
		beat := &integration.Spec.Heartbeats[i]
		if !beat.IsPing() {
			continue
		}
		if beat.Name == name {
			return nil
		}
		names = append(names, beat.Name)
	}
	if len(names) == 0 {
		return problemHeartbeat.withDetail("The integration has no heartbeat with match.ping.")
	}
	return problemHeartbeat.withDetail(
		"The integration has these heartbeats with match.ping: " + strings.Join(names, ", ") + ".")
}
