// Package tally counts Incidents that are Open by severity, for the IncidentSummary of a namespace and for kubectl tocsin check.
package tally

import (
	"fmt"
	"strings"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Counts are numbers of Incidents by severity.
type Counts v1alpha1.SeverityCounts

// Includes reports whether an Incident counts: it is Open. An acknowledgement, a silence or a maintenance window spares people a
// page, and ends no problem. One that is being deleted counts until it is gone.
func Includes(incident *v1alpha1.Incident) bool {
	return incident.Status.State == v1alpha1.IncidentOpen
}

// Add counts an Incident.
func (c *Counts) Add(severity v1alpha1.Severity) {
	c.Total++
	switch severity {
	case v1alpha1.SeverityCritical:
		c.Critical++
	case v1alpha1.SeverityError:
		c.Error++
	case v1alpha1.SeverityWarning:
		c.Warning++
	case v1alpha1.SeverityInfo:
		c.Info++
	}
}

// Severe returns how many are severe: critical, of the severity error, or, in what an earlier version or a person has written, of
// none. A gate that took these for harmless would open.
func (c *Counts) Severe() int64 { return c.Total - c.Warning - c.Info }

// String returns the counts that are not 0, such as "1 critical, 2 info".
func (c *Counts) String() string {
	var parts []string
	for _, part := range []struct {
		count int64
		name  string
	}{
		{c.Critical, "critical"}, {c.Error, "error"}, {c.Warning, "warning"}, {c.Info, "info"},
		{c.Severe() - c.Critical - c.Error, "without a severity"},
	} {
		if part.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.count, part.name))
		}
	}
	return strings.Join(parts, ", ")
}
