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
	owner, p, status := s.authenticated, s.problem, s.reply.Status
	if status == http.StatusUnauthorized && owner == nil {
		h.logUnauthorized(s.arrived)
	}
	if (p == nil || owner == nil) && !h.log.V(1).Enabled() {
		return // gathering the values costs as much as reading a small payload
	}
	log := h.log.WithValues("route", s.route(), "status", status, "duration", took.Seconds())
	if owner != nil {
		log = log.WithValues("namespace", owner.integration.Namespace, "integration", owner.integration.Name)
	}
	switch {
	case p == nil:
		if accepted := s.accepted; accepted != nil && len(accepted.Alerts) > 0 {
			log.V(1).Info("Accepted a request", "event", accepted.Event, "alerts", len(accepted.Alerts),
				"incident", accepted.Alerts[0].Incident, "warnings", len(accepted.Warnings))
		}
	case status >= http.StatusInternalServerError && p.Cause != nil:
		log.Error(p.Cause, "Could not store an alert", "problem", string(p.Type))
	case owner != nil:
		log = log.WithValues("address", s.address())
		if p.Offset != nil {
			log = log.WithValues("offset", *p.Offset)
		}
		log.Info("Rejected a request", "problem", string(p.Type))
	default: // anybody can cause these
		log.V(1).Info("Rejected a request", "problem", string(p.Type))
	}
}

// address returns the address that the request came from, without the port.
func (a *arrived) address() string {
	host, _, _ := net.SplitHostPort(a.RemoteAddr)
	return host
}

// logUnauthorized tells, at most once per unauthorizedInterval, where a request with an invalid token came from, and whose tag
// the token has. The user agent is any text, and may quote the token.
func (h *handler) logUnauthorized(a *arrived) {
	now, last := a.start.UnixNano(), h.unauthorized.Load()
	if time.Duration(now-last).Abs() < unauthorizedInterval || !h.unauthorized.CompareAndSwap(last, now) {
		h.unauthorizedHidden.Add(1)
		return
	}
	agent := plaintext.OneLine(a.UserAgent(), maxLoggedAgent, maxLoggedAgent)
	if strings.Contains(agent, tokens.Prefix) ||
		len(a.token) >= quotedTokenPrefix && strings.Contains(agent, a.token[:quotedTokenPrefix]) {
		agent = "(quotes the token)"
	}
	log := h.log.WithValues("address", a.address(), "userAgent", agent, "othersSinceLastLine", h.unauthorizedHidden.Swap(0))
	if owner := h.tokens.tagged(a.token); owner != nil {
		log = log.WithValues("namespace", owner.Namespace, "tagOfIntegration", owner.Name)
	}
	log.Info("Rejected a request without a valid token")
}
