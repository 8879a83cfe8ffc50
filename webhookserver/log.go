package webhookserver

import (
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

// logServed writes one line about the request. The route stands for the path, which has the token in it.
func (h *handler) logServed(s *served, took time.Duration) {
	arrived, owner, p, status := s.arrival(), s.owner(), s.problem, s.reply.Status
	if status == http.StatusUnauthorized && owner == nil {
		h.logUnauthorized(arrived)
	}
	if (p == nil || owner == nil) && !h.log.V(1).Enabled() {
		return // gathering the values costs as much as reading a small payload
	}
	log := h.log.WithValues("route", arrived.route(), "status", status, "duration", took.Seconds())
	if owner != nil {
		log = log.WithValues("namespace", owner.integration.Namespace, "integration", owner.integration.Name)
	}
	switch {
	case p == nil:
		if stored, ok := s.phase.(*stored); ok && len(stored.accepted.Alerts) > 0 {
			accepted := stored.accepted
			log.V(1).Info("Accepted a request", "event", accepted.Event, "alerts", len(accepted.Alerts),
				"incident", accepted.Alerts[0].Incident, "warnings", len(accepted.Warnings))
		}
	case status >= http.StatusInternalServerError && p.cause != nil:
		log.Error(p.cause, "Could not store an alert", "problem", string(p.Type))
	case owner != nil:
		log.Info("Rejected a request", append(whereabouts(arrived, p), "problem", string(p.Type))...)
	default: // anybody can cause these
		log.V(1).Info("Rejected a request", "problem", string(p.Type))
	}
}

// whereabouts are the values for the log that tell where a rejected request came from, and where its body is wrong.
func whereabouts(a *arrived, p *problem) []any {
	host, _, _ := net.SplitHostPort(a.RemoteAddr)
	values := []any{"address", host}
	if p.Offset != nil {
		values = append(values, "offset", *p.Offset)
	}
	return values
}

// logUnauthorized tells, at most once per unauthorizedInterval, where a request with an invalid token came from, and whose tag
// the token has. The user agent is any text, and may quote the token.
func (h *handler) logUnauthorized(a *arrived) {
	now, last := a.start.UnixNano(), h.unauthorized.Load()
	if time.Duration(now-last).Abs() < unauthorizedInterval || !h.unauthorized.CompareAndSwap(last, now) {
		h.unauthorizedHidden.Add(1)
		return
	}
	host, _, _ := net.SplitHostPort(a.RemoteAddr)
	agent := plaintext.OneLine(a.UserAgent(), maxLoggedAgent, maxLoggedAgent)
	if strings.Contains(agent, tokens.Prefix) ||
		len(a.token) >= quotedTokenPrefix && strings.Contains(agent, a.token[:quotedTokenPrefix]) {
		agent = "(quotes the token)"
	}
	log := h.log.WithValues("address", host, "userAgent", agent, "othersSinceLastLine", h.unauthorizedHidden.Swap(0))
	if owner := h.tokens.tagged(a.token); owner != nil {
		log = log.WithValues("namespace", owner.Namespace, "tagOfIntegration", owner.Name)
	}
	log.Info("Rejected a request without a valid token")
}
