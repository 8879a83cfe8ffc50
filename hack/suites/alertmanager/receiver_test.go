//go:build slow

package alertmanager

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Statuses of notifications.
const (
	firing   = "firing"
	resolved = "resolved"
)

// subject is what a person is notified about: an Incident at a severity. Alertmanager takes each for an alert of its own.
type subject struct{ incident, severity string }

func (s subject) String() string { return s.incident + " " + s.severity }

// notification is one that the receiver got.
type notification struct {
	at     time.Time
	status string // firing or resolved
	from   string // the address of the Alertmanager
}

// receiver is the webhook to which the Alertmanagers send their notifications, in place of a pager.
type receiver struct {
	*httptest.Server

	mu     sync.Mutex
	got    map[subject][]notification
	faults []time.Time // each allows one duplicate of a notification
}

func startReceiver() *receiver {
	r := &receiver{got: map[subject][]notification{}}
	r.Server = httptest.NewServer(r)
	return r
}

// ServeHTTP takes a notification in Alertmanager's webhook format.
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var body struct {
		ExternalURL string
		Alerts      []struct {
			Status string
			Labels map[string]string
		}
	}
	if err := json.NewDecoder(request.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, alert := range body.Alerts {
		about := subject{alert.Labels[v1alpha1.ForwardedLabel], alert.Labels["severity"] +
			reminder(alert.Labels[v1alpha1.ReminderLabel]) + assignedTo(alert.Labels[v1alpha1.AssigneeLabel])}
		r.got[about] = append(r.got[about], notification{time.Now(), alert.Status, body.ExternalURL})
	}
}

// reminder is added to the severity in the subject of an alert whose acknowledgements have expired so often.
func reminder(times string) string {
	if times == "" {
		return ""
	}
	return " again " + times
}

// assignedTo is added to the severity in the subject of an alert that names who works on its Incident.
func assignedTo(name string) string {
	if name == "" {
		return ""
	}
	return " to " + name
}

// fault notes a fault: from now on each notification may come once more.
func (r *receiver) fault() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, time.Now())
}

// statuses are those of the notifications about a subject, without the duplicates of the one before, which it counts.
func (r *receiver) statuses(about subject) (statuses []string, duplicates int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range withoutCrossed(r.got[about]) {
		if len(statuses) > 0 && statuses[len(statuses)-1] == n.status {
			duplicates++
			continue
		}
		statuses = append(statuses, n.status)
	}
	return statuses, duplicates
}

// withoutCrossed leaves out what Alertmanager does by itself: the second one of a cluster looks at its alerts, waits for the
// first one (--cluster.peer-timeout), and then notifies of what it saw if the log of notifications differs. If the alert ended
// meanwhile and the first one has notified of it, the end, a page of the second, and the end again come within a moment.
// Prometheus' alerts suffer from it too. A resolve is never left out.
func withoutCrossed(got []notification) []notification {
	var kept []notification
	for i := 0; i < len(got); i++ {
		n := len(kept)
		if n > 0 && i+1 < len(got) && kept[n-1].status == resolved && got[i].status == firing && got[i+1].status == resolved &&
			got[i].from != kept[n-1].from && got[i+1].at.Sub(kept[n-1].at) < crossing {
			i++
			continue
		}
		kept = append(kept, got[i])
	}
	return kept
}

// allowed is how many duplicates there may be of the notifications about a subject: one for each fault since the first.
func (r *receiver) allowed(about subject) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.got[about]) == 0 {
		return 0
	}
	first := r.got[about][0].at
	allowed := 0
	for _, at := range r.faults {
		// One that came just before the fault may be in flight, or not yet be known to the other Alertmanager.
		if at.After(first.Add(-faultWindow)) {
			allowed++
		}
	}
	return allowed
}

// crossing is how long notifications of two Alertmanagers that cross each other take at most.
const crossing = peerTimeout + groupInterval + time.Second

// faultWindow is how long before a first notification a fault may begin that causes a duplicate of it: one that lasts.
const faultWindow = time.Minute

// subjects are those that the receiver was notified about.
func (r *receiver) subjects() []subject {
	r.mu.Lock()
	defer r.mu.Unlock()
	var subjects []subject
	for about := range r.got {
		subjects = append(subjects, about)
	}
	return subjects
}

// summary counts the notifications.
func (r *receiver) summary() string {
	pages, ends, duplicates, crossed := 0, 0, 0, 0
	for _, about := range r.subjects() {
		statuses, again := r.statuses(about)
		duplicates += again
		for _, status := range statuses {
			if status == firing {
				pages++
			} else {
				ends++
			}
		}
		r.mu.Lock()
		crossed += (len(r.got[about]) - len(withoutCrossed(r.got[about]))) / 2
		r.mu.Unlock()
	}
	return fmt.Sprintf("The receiver got %d pages, %d resolves and %d duplicates of them; there were %d faults. "+
		"The Alertmanagers crossed each other %d times.", pages, ends, duplicates, len(r.faults), crossed)
}

// history lists the notifications about each subject, for a failure.
func (r *receiver) history() string {
	var lines []string
	r.mu.Lock()
	defer r.mu.Unlock()
	for about, notifications := range r.got {
		line := []string{about.String() + ":"}
		for _, n := range notifications {
			line = append(line, n.status+"@"+n.at.Format("15:04:05.000")+" by "+n.from)
		}
		lines = append(lines, strings.Join(line, " "))
	}
	slices.Sort(lines)
	const most = 60
	return strings.Join(lines[:min(len(lines), most)], "\n")
}
