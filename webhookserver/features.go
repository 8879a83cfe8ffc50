package webhookserver

import (
	"context"

	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/feature"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// answerByFeature answers a request for an operation of a feature.
func (h *handler) answerByFeature(c *checked) (reply protocol.Reply, p *problem) {
	answer, p := c.feature.Answer(&feature.Request{
		Integration: c.integrationName(), Identifier: c.identifier, Parameters: c.queryParts(), Received: c.received, DryRun: c.dryRun,
	})
	switch {
	case p != nil || c.dryRun:
		return answer.Reply, p
	case answer.Urgent:
		if p = h.writeReport(c.authenticated, answer.Report); p != nil {
			return reply, p
		}
	default:
		h.reports.addReport(answer.Report)
	}
	h.tellFeatures(c, nil, true)
	if took := h.options.Clock.Now().Sub(c.start); c.operation.Accepted != nil {
		return c.operation.Accepted(protocol.Stored{Integration: c.integration.Name, Took: took}), nil
	}
	return answer.Reply, nil
}

// writeReport has the status of an object have a report.
func (h *handler) writeReport(a *authenticated, report feature.Report) *problem {
	memory := h.bodies.Reserve(a.integrationName(), minBodyMemory, 0)
	if memory == nil {
		return &problemOverload
	}
	defer memory.Release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.Context()), commit.Timeout)
	defer cancel()
	if err := h.reports.writeReport(ctx, report); err != nil {
		return problemUnavailable.WithDetail("The Kubernetes API server did not accept the failure in time; try again.").CausedBy(err)
	}
	return nil
}

// tellFeatures tells the features of a request that was accepted, whole or in part.
func (h *handler) tellFeatures(c *checked, alerts []mapping.Alert, whole bool) {
	if c.dryRun {
		return
	}
	for _, f := range h.options.Features {
		for _, report := range f.Accepted(c.integrationName(), alerts, whole, h.options.Health.APITime()) {
			h.reports.addReport(report)
		}
	}
}
