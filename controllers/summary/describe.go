package summary

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/tally"
)

// maxNotFolded is how many integrations the condition names whose alerts do not become Incidents.
const maxNotFolded = 3

// describe has the status of a summary tell these contents of its namespace.
func describe(summary *v1alpha1.IncidentSummary, c *contents, now time.Time) {
	var open, unacknowledged tally.Counts
	var newest *v1alpha1.Incident
	for i := range c.incidents {
		incident := &c.incidents[i]
		if !tally.Includes(incident) {
			continue
		}
		severity := incident.Status.Alert.Severity
		open.Add(severity)
		if !isAcknowledged(incident) {
			unacknowledged.Add(severity)
		}
		if severity == v1alpha1.SeverityCritical && isNewer(incident, newest) {
			newest = incident
		}
	}
	status := &summary.Status
	status.Open = new(v1alpha1.SeverityCounts(open))
	status.Unacknowledged = new(v1alpha1.SeverityCounts(unacknowledged))
	status.NewestCritical = nil
	if newest != nil {
		status.NewestCritical = &v1alpha1.SummarizedIncident{
			Name: newest.Name, Title: newest.Status.Alert.Title, OpenedTime: newest.Status.OpenedTime,
		}
	}
	status.ObservedGeneration = summary.Generation
	meta.SetStatusCondition(&status.Conditions, clearness(&open, c.notFolded, summary.Generation, now))
}

// clearness returns the condition Clear.
func clearness(open *tally.Counts, notFolded []string, generation int64, now time.Time) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionClear, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNoSevereIncident,
		Message: "No Incident is Open.", ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
	}
	if open.Total > 0 {
		condition.Message = "Open: " + open.String() + "."
	}
	switch {
	case open.Severe() > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonSevereIncidentOpen
	case len(notFolded) > 0:
		condition.Status, condition.Reason = metav1.ConditionUnknown, v1alpha1.ReasonAlertsNotFolded
	}
	if named := notFolded[:min(maxNotFolded, len(notFolded))]; len(named) > 0 {
		condition.Message += " Alerts for " + strings.Join(named, ", ")
		if more := len(notFolded) - len(named); more > 0 {
			condition.Message += fmt.Sprintf(" and %d other integrations", more)
		}
		condition.Message += " do not become Incidents."
	}
	return condition
}

// isAcknowledged reports whether somebody has acknowledged the Incident as severe as it is.
func isAcknowledged(incident *v1alpha1.Incident) bool {
	return meta.IsStatusConditionTrue(incident.Status.Conditions, v1alpha1.ConditionAcknowledged) &&
		fold.StaysAcknowledged(&incident.Status)
}

// isNewer reports whether an Incident was opened later than another one, if there is another one. Of those that were opened at
// the same time, one is always the newer one, or the summary would change whenever a cache lists them in another order.
func isNewer(a, b *v1alpha1.Incident) bool {
	if b == nil {
		return true
	}
	openedA, openedB := a.Status.OpenedTime.OrZero(), b.Status.OpenedTime.OrZero()
	return openedA.After(openedB) || openedA.Equal(openedB) && a.Name < b.Name
}

// differs reports whether a summary may change when an Incident does. It leaves out what each repetition of an alert changes.
func differs(before, after *v1alpha1.Incident) bool {
	was, is := &before.Status, &after.Status
	return was.State != is.State || was.Alert.Severity != is.Alert.Severity || was.Alert.Title != is.Alert.Title ||
		isAcknowledged(before) != isAcknowledged(after) || !before.Status.OpenedTime.OrZero().Equal(after.Status.OpenedTime.OrZero())
}

// differsInFolding reports whether a summary may change when an integration does.
func differsInFolding(before, after *v1alpha1.WebhookIntegration) bool {
	return integrations.WhyNotFolded(before) != integrations.WhyNotFolded(after)
}
