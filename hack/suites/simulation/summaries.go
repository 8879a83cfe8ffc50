package simulation

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/tally"
)

// summaries judges the IncidentSummaries: at the end, each tells what a recount of its namespace does, whoever led meanwhile.
type summaries struct {
	told      map[string]*v1alpha1.IncidentSummary // by namespace; nil: it was deleted
	changed   map[string]time.Time                 // when a namespace last changed in what its summary tells
	notFolded map[string]string                    // why alerts for its integration do not become Incidents
	found     *oracle.Findings
}

// counted is what a summary tells of an Incident. That of one that does not count is empty.
type counted struct {
	state        v1alpha1.IncidentState
	severity     v1alpha1.Severity
	acknowledged bool
}

func countedOf(incident *v1alpha1.Incident) counted {
	if incident == nil || incident.Status.State != v1alpha1.IncidentOpen {
		return counted{}
	}
	acknowledged := meta.IsStatusConditionTrue(incident.Status.Conditions, v1alpha1.ConditionAcknowledged)
	if order, then := v1alpha1.Severities(), incident.Status.Acknowledgement; then != nil { // it covers nothing more severe
		acknowledged = acknowledged && slices.Index(order, then.Severity) <= slices.Index(order, incident.Status.Alert.Severity)
	}
	return counted{v1alpha1.IncidentOpen, incident.Status.Alert.Severity, acknowledged}
}

// commit notes a write, of an Incident with what was before.
func (s *summaries) commit(c *change, before *v1alpha1.Incident) {
	namespace := c.Namespace
	switch c.Resource {
	case "incidentsummaries":
		s.told[namespace] = decode[v1alpha1.IncidentSummary](c.Object)
	case "incidents":
		if countedOf(before) != countedOf(c.incident) {
			s.changed[namespace] = time.Now()
		}
	case "webhookintegrations":
		why := ""
		if c.integration != nil {
			why = integrations.WhyNotFolded(c.integration)
		}
		if c.integration == nil || why != s.notFolded[namespace] {
			s.changed[namespace], s.notFolded[namespace] = time.Now(), why
		}
	}
}

// recount is what a summary is to tell.
type recount struct{ open, unacknowledged tally.Counts }

// recount counts the Incidents of a namespace; nil if it is to have no summary.
func (m *mutes) recount(namespace string) (r *recount) {
	for key, integration := range m.integrations {
		if key.Namespace == namespace && integration != nil {
			r = &recount{}
		}
	}
	for key, incident := range m.incidents {
		if key.Namespace != namespace || incident == nil || incident.Status.State == v1alpha1.IncidentResolved {
			continue
		}
		if r == nil {
			r = &recount{}
		}
		if is := countedOf(incident); is != (counted{}) {
			r.open.Add(is.severity)
			if !is.acknowledged {
				r.unacknowledged.Add(is.severity)
			}
		}
	}
	return r
}

// check judges the last state of namespaces in which nothing has changed for some time, and no fault stays.
func (s *summaries) check(m *mutes, now time.Time, stays func(namespace string) bool) {
	for _, namespace := range tenants {
		summary, recount := s.told[namespace], m.recount(namespace)
		switch {
		case stays(namespace) || now.Sub(s.changed[namespace]) < slowest:
		case summary == nil && recount == nil:
		case summary == nil || recount == nil:
			s.found.Add("S: %s has the summary %v, and a recount is %v", namespace, summary, recount)
		case summary.Status.Open == nil || summary.Status.Unacknowledged == nil:
			s.found.Add("S: the summary of %s has no counts", namespace)
		case tally.Counts(*summary.Status.Open) != recount.open,
			tally.Counts(*summary.Status.Unacknowledged) != recount.unacknowledged:
			s.found.Add("S: the summary of %s has %v open and %v unacknowledged, and a recount is %v", namespace,
				*summary.Status.Open, *summary.Status.Unacknowledged, *recount)
		case meta.IsStatusConditionTrue(summary.Status.Conditions, v1alpha1.ConditionClear) !=
			(recount.open.Severe() == 0 && s.notFolded[namespace] == ""):
			s.found.Add("S: the summary of %s says %v, and a recount is %v", namespace, summary.Status.Conditions, *recount)
		}
	}
}
