package webhookserver

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// signal says that a heartbeat was heard.
type signal struct {
	heartbeat string
	time      time.Time // by the API server's clock
	failed    bool      // the sender reported a failure
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

// ping takes a ping of a heartbeat to its answer. One that reports a failure is an alert, and stored before it is answered.
func (h *handler) ping(x *exchange) (reply protocol.Reply, p *problem) {
	if p = x.parseParameters(); p != nil {
		return reply, p
	}
	name, exit, _ := strings.Cut(strings.TrimSuffix(x.identifier, "/"), "/")
	if strings.Contains(exit, "/") {
		return reply, &problemNotFound
	}
	beat, p := findPing(x.integration, name)
	if p != nil {
		return reply, p
	}
	failed, ok := x.outcome(exit)
	if !ok {
		return reply, &problemOutcome
	}
	heard := signal{heartbeat: name, time: x.received, failed: failed}
	status := http.StatusOK
	if failed && !x.dryRun {
		if p = h.storeFailure(x, beat, exit); p != nil {
			return reply, p
		}
		status = http.StatusAccepted
	}
	answer := &pong{Status: "accepted", Heartbeat: name, Failed: failed}
	if x.dryRun {
		answer.Status = "dryRun"
	} else {
		h.reports.reportSignals(x.integration, []signal{heard})
		h.noteSignals(x, nil)
	}
	return protocol.Reply{Status: status, Body: answer}, nil
}

// outcome says whether a ping reports a failure, by its exit code or its parameter status; ok is false if that is unclear.
func (x *exchange) outcome(exit string) (failed, ok bool) {
	given := false
	for name, value := range x.parameters() {
		if name != "status" {
			continue
		}
		outcome, known := outcomes[strings.ToLower(value)]
		if !known || given && outcome != failed {
			return false, false
		}
		given, failed = true, outcome
	}
	code, err := strconv.ParseUint(cmp.Or(exit, "0"), 10, 8)
	return failed || code > 0, err == nil
}

// findPing returns the heartbeat that is pinged under a name, or the problem that lists those that there are.
func findPing(integration *v1alpha1.WebhookIntegration, name string) (*v1alpha1.Heartbeat, *problem) {
	var names []string
	for i := range integration.Spec.Heartbeats {
		beat := &integration.Spec.Heartbeats[i]
		if !beat.IsPing() {
			continue
		}
		if beat.Name == name {
			return beat, nil
		}
		names = append(names, beat.Name)
	}
	if len(names) == 0 {
		return nil, problemHeartbeat.withDetail("The integration has no heartbeat with match.ping.")
	}
	return nil, problemHeartbeat.withDetail(
		"The integration has these heartbeats with match.ping: " + strings.Join(names, ", ") + ".")
}

// storeFailure stores the alert that a heartbeat has failed.
func (h *handler) storeFailure(x *exchange, beat *v1alpha1.Heartbeat, exit string) *problem {
	switch {
	case h.capacity.Refusal(x.integration.Namespace) == v1alpha1.ReasonQueueFull:
		return &problemNamespaceFull
	case h.committer.CheckCapacity(x.sender()) != nil:
		return &problemOverload
	}
	memory := h.bodies.Reserve(x.sender(), minBodyMemory, 0)
	if memory == nil {
		return &problemOverload
	}
	defer memory.Release()
	description := "The sender reported a failure."
	if code := strings.TrimLeft(exit, "0"); code != "" {
		description = fmt.Sprintf("The sender reported a failure, with the exit code %s.", code)
	}
	alerts := []mapping.Alert{{Alert: v1alpha1.Alert{
		DedupKey: v1alpha1.HeartbeatKey(beat.Name), Status: v1alpha1.AlertFiring,
		AlertContent: v1alpha1.AlertContent{
			Title:       cmp.Or(beat.Title, fmt.Sprintf("The heartbeat %s has failed", beat.Name)),
			Description: description, Severity: cmp.Or(beat.Severity, v1alpha1.SeverityCritical), Type: "heartbeat",
		},
	}}}
	if x.key != "" {
		x.key = x.operationKey()
	}
	identify(alerts, x.integration.Name, x.key, []byte(x.URL.RawQuery))
	receipt, p := h.store(x, []v1alpha1.Alert{alerts[0].Alert})
	if p == nil {
		x.accepted = newAcceptance(x, &decodedAlerts{Result: mapping.Result{Alerts: alerts}}, receipt)
	}
	return p
}
