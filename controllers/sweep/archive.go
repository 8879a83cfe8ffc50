package sweep

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

// archivePatience is how long a Resolved Incident may wait for the archive before the condition Archived tells so, and how often
// all are visited from then on.
const archivePatience = 15 * time.Minute

// Messages of the condition Archived.
const (
	messageArchiving = "The archive gets a record of every episode that ends."
	messageBehind    = "Incidents of this namespace have waited for the archive for over 15 minutes. They are not deleted before."
)

var archiveOverdue = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "tocsin_archive_overdue_incidents",
	Help: "Resolved Incidents that had waited for the archive for over 15 minutes when the leader last visited " +
		"all, every hour, or every 15 minutes while there are any. They are not deleted.",
})

// noteOverdue counts a Resolved Incident that the archive should have had for long.
func (s *Sweeper) noteOverdue(overdue *fair.Budget[string], incident *v1alpha1.Incident) {
	resolved := incident.Status.ResolvedTime
	if resolved != nil && s.options.Clock.APITime().Sub(resolved.Time) > archivePatience && !s.isArchived(incident) {
		overdue.Add(incident.Namespace, 1)
	}
}

// Condition returns the condition Archived of an integration, as the last sweep has found it.
func (s *Sweeper) Condition(integration *v1alpha1.WebhookIntegration) (condition metav1.Condition, ok bool) {
	if !s.options.ArchiveRequired {
		return condition, true // it has none
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	condition = metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonArchiving, Message: messageArchiving}
	if s.overdue.Used(integration.Namespace) > 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonArchiveBehind, messageBehind
	}
	return condition, s.swept
}

func (s *Sweeper) isArchived(incident *v1alpha1.Incident) bool {
	return !s.options.ArchiveRequired || fold.IsArchived(&incident.Status)
}
