package simulation

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// maintain replaces the maintenance windows of a tenant by one that opens after a while, or by none.
type maintain struct {
	tenant   int
	after, d time.Duration // d is 0: there are no windows
}

// do names each window anew, since the deletion of the one before may fail. Every other tenant's is for its integration by name.
func (o maintain) do(w *world) {
	_ = w.users.DeleteAllOf(context.Background(), &v1alpha1.MaintenanceWindow{}, client.InNamespace(tenantName(o.tenant)))
	if o.d == 0 {
		return
	}
	start := time.Now().Add(o.after)
	window := testenv.Window(tenantName(o.tenant), "", start, start.Add(o.d))
	window.GenerateName = "window-"
	if o.tenant%2 == 1 {
		window.Spec.Integrations = &v1alpha1.IntegrationSelection{Names: []string{integrationName}}
	}
	_ = w.users.Create(context.Background(), &window)
}

// mutes judges what is written about maintenance windows: nothing that was forwarded may be taken for new, nothing that is new
// for forwarded, and no Incident may stay muted.
type mutes struct {
	incidents    map[types.NamespacedName]*v1alpha1.Incident
	integrations map[types.NamespacedName]*v1alpha1.WebhookIntegration
	windows      map[types.NamespacedName]*v1alpha1.MaintenanceWindow
	deleted      map[types.NamespacedName]bool // Incidents that were
	holds        holds
	losesWindows bool // see Story.loses
	found        *oracle.Findings
	written      func(*v1alpha1.Incident) // nil: nobody watches
	conditions   func(kind, reason string)
}

func (m *mutes) commit(c *change) {
	key := c.key
	switch c.Resource {
	case "webhookintegrations":
		m.integrations[key] = c.integration
		m.holds.other[key.Namespace] = m.holds.other[key.Namespace] || c.integration == nil
		if c.integration != nil && m.conditions != nil {
			for _, condition := range c.integration.Status.Conditions {
				m.conditions(condition.Type, condition.Reason)
			}
		}
	case "maintenancewindows":
		if m.windows[key] = decode[v1alpha1.MaintenanceWindow](c.Object); m.windows[key] == nil {
			delete(m.windows, key)
		}
	case "incidents":
		before, after := m.incidents[key], c.incident
		m.incidents[key], m.deleted[key] = after, m.deleted[key] || after == nil
		if after != nil && isReplica(c.client) {
			m.commitIncident(key, before, after)
		}
	}
}

func (m *mutes) commitIncident(key types.NamespacedName, before, after *v1alpha1.Incident) {
	if before != nil && before.UID != after.UID {
		before = nil
	}
	m.judge(key, before, after)
	m.judgeLabels(key, before, after)
	m.holds.judge(key, after, m.found)
	if m.written != nil {
		m.written(after)
	}
}

// decode returns an object, nil if it was deleted.
func decode[T any](object []byte) *T {
	if object == nil {
		return nil
	}
	decoded := new(T)
	if err := json.Unmarshal(object, decoded); err != nil {
		panic(err)
	}
	return decoded
}

func (m *mutes) judge(key types.NamespacedName, before, after *v1alpha1.Incident) {
	was, is := &v1alpha1.IncidentStatus{}, &after.Status
	if before != nil {
		was = &before.Status
	}
	wasOpen, isOpen := was.State == v1alpha1.IncidentOpen, is.State == v1alpha1.IncidentOpen
	switch {
	case wasOpen && foldsSeveral(was, is) && (!isOpen || is.Episode.Number != was.Episode.Number):
		// The mute follows each alert, and a fold of several tells only the last one: the window may have ended before a resolve.
	case wasOpen && !isOpen && (was.Mute == nil) != (is.Mute == nil):
		m.found.Add("M: %s is resolved, was muted: %v, and is: %v", key, was.Mute, is.Mute)
	case is.Mute == nil:
	case wasOpen:
		m.judgeForwarded(key, was, is)
	case isOpen && is.Mute.ForwardedSeverity != "" && !firesOn(is):
		m.found.Add("M: %s has opened, and is muted as if it had been forwarded", key)
	}
}

// foldsSeveral reports whether a write folds more than one alert. What a user reports counts as no alert, but is in the ledger.
func foldsSeveral(was, is *v1alpha1.IncidentStatus) bool {
	folded := 0
	for _, entry := range is.Ledger.Events {
		if !slices.Contains(was.Ledger.Events, entry) {
			folded++
		}
	}
	return folded > 1 || is.AlertCount-was.AlertCount > 1
}

// judgeForwarded judges what a muted Incident that was open tells of what was forwarded.
func (m *mutes) judgeForwarded(key types.NamespacedName, was, is *v1alpha1.IncidentStatus) {
	switch {
	case was.Mute == nil && is.Mute.ForwardedSeverity == "" && was.Episode.ForwardTime != nil: // it may have been held back
	case firesOn(was): // with the highest severity since then
	case was.Mute == nil && is.Mute.ForwardedSeverity != was.Alert.Severity:
		m.found.Add("M: %s was forwarded with severity %s, and is muted with %q", key, was.Alert.Severity, is.Mute.ForwardedSeverity)
	case was.Mute != nil && is.Mute.ForwardedSeverity != was.Mute.ForwardedSeverity:
		m.found.Add("M: %s was muted with %q, and is with %q", key, was.Mute.ForwardedSeverity, is.Mute.ForwardedSeverity)
	}
}

// slowest is how long after a window has opened or ended the last Incident may be written, when nothing is wrong.
const slowest = 10 * time.Second

// check judges the last state: Incidents are muted if a window is open, and the status of each window tells whether it is. Where
// a fault stays, they may not be writable.
func (m *mutes) check(now time.Time, stays func(namespace string) bool) {
	for key, incident := range m.incidents {
		if incident == nil || stays(key.Namespace) || incident.Status.State != v1alpha1.IncidentOpen ||
			!incident.DeletionTimestamp.IsZero() {
			continue
		}
		m.holds.check(key, incident, now, m.found)
		open, settled := m.isOpen(key.Namespace, now)
		settled = settled && m.integrations[types.NamespacedName{Namespace: key.Namespace, Name: incident.Spec.IntegrationName}] != nil
		if settled && !m.losesWindows && open != (incident.Status.Mute != nil) {
			m.found.Add("M: %s is open, a window: %v, and it is muted: %v", key, open, incident.Status.Mute)
		}
	}
	for key, window := range m.windows {
		open, settled := isOpen(window, now)
		told := meta.IsStatusConditionTrue(window.Status.Conditions, v1alpha1.ConditionWindowOpen)
		if settled && !m.losesWindows && open != told && !stays(key.Namespace) {
			m.found.Add("M: the window %s is open: %v, and its status says: %v", key, open, told)
		}
	}
}

// isOpen reports whether a namespace has an open window, and whether that has been so for some time.
func (m *mutes) isOpen(namespace string, now time.Time) (open, settled bool) {
	settled = true
	for key, window := range m.windows {
		if key.Namespace == namespace {
			isOpen, isSettled := isOpen(window, now)
			open, settled = open || isOpen, settled && isSettled
		}
	}
	return open, settled
}

func isOpen(window *v1alpha1.MaintenanceWindow, now time.Time) (open, settled bool) {
	once := window.Spec.Once
	settled = true
	for _, change := range []v1alpha1.Timestamp{once.StartTime, once.EndTime} {
		settled = settled && (now.Before(change.Time) || now.Sub(change.Time) > slowest)
	}
	return !now.Before(once.StartTime.Time) && now.Before(once.EndTime.Time), settled
}
