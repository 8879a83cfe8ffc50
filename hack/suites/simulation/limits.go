package simulation

import (
	"slices"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
)

const (
	// autoResolveAfter is that of the integrations of a story with AutoResolve.
	autoResolveAfter = time.Minute

	// emptyTime is how long after its last alert an Incident is Resolved at the latest, when nothing is wrong.
	emptyTime = autoResolveAfter + grace + 30*time.Second

	// settleTime is for the folds of the last alerts of Incidents that are quiet from then on.
	settleTime = 10 * time.Second

	// newcomer is the key of an Incident that needs a place where there is none.
	newcomer = 9
)

// emptyNamespaces judges that a namespace that has as many Incidents as it may have gets empty by itself, though a sender goes on
// to post alerts that need a place.
func (w *world) emptyNamespaces() oracle.Findings {
	if !w.story.AutoResolve || w.story.MaxIncidents == 0 {
		return nil
	}
	for i, namespace := range tenants {
		w.pings.hush(namespace, time.Now()) // while its heartbeat is missed, no Incident ends for want of alerts
		for key := range newcomer {         // as many as there may be, and more
			w.senders.deliver(w.senders.request(namespace, []alert{{key: key, status: "firing", severity: "error"}}, ""), i)
		}
	}
	time.Sleep(settleTime)
	quiet := map[string][]string{} // names of the Incidents that get no alert any more, by namespace
	for _, namespace := range tenants {
		quiet[namespace] = w.openIncidents(namespace)
	}
	for began := time.Now(); time.Since(began) < emptyTime; time.Sleep(10 * time.Second) {
		for i, namespace := range tenants {
			w.senders.deliver(w.senders.request(namespace, []alert{{key: newcomer, status: "firing", severity: "error"}}, ""), i)
		}
	}
	w.senders.busy.Wait()
	found := w.judge.findings()
	for _, namespace := range tenants {
		open := w.openIncidents(namespace)
		for _, name := range quiet[namespace] {
			if slices.Contains(open, name) && !w.story.stays(namespace) && w.storedIntegration(namespace) != nil {
				found.Add("B: %s/%s is Open, and has had no alert for %s", namespace, name, emptyTime)
			}
		}
	}
	return found
}

// openIncidents returns the names of the Incidents of alerts that are Open and not being deleted.
func (w *world) openIncidents(namespace string) []string {
	var names []string
	for _, incident := range stored[v1alpha1.Incident](w, "incidents", namespace) {
		isOwn := incident.Spec.DedupKey != v1alpha1.HeartbeatKey(heartbeatName) && incident.Spec.DedupKey != keyName(newcomer)
		if isOwn && incident.Status.State == v1alpha1.IncidentOpen && incident.DeletionTimestamp.IsZero() {
			names = append(names, incident.Name)
		}
	}
	return names
}
