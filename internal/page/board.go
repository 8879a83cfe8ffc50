package page

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/live"
)

const (
	// settle is how long changes are gathered before they are sent.
	settle = 200 * time.Millisecond
	// heartbeat is the interval of messages without changes, so that the browser notices a lost connection.
	heartbeat = 2 * time.Second

	// rowChunk bounds the rows of one message, each of which has its own deadline: a slow link needs longer for a large list.
	rowChunk = 200

	// maxRowLabels and maxLabelChars bound the labels that can be searched.
	maxRowLabels  = 32
	maxLabelChars = 200
)

// message is one line of the stream.
type message struct {
	// Whole means that Rows replace all rows; otherwise they are added, or are changed rows.
	Whole bool  `json:"whole,omitempty"`
	Rows  []row `json:"rows,omitempty"`
	// Synced is false until the browser has the whole initial list.
	Synced bool `json:"synced"`
	// Problem is the reason why the rows may be out of date.
	Problem string `json:"problem,omitempty"`
	// Age is the time in seconds since the API server confirmed that the rows are up to date.
	Age float64 `json:"age"`
	// Scope is the namespace; empty for all.
	Scope string `json:"scope"`
	// Command is the beginning of a command line for the same cluster.
	Command string `json:"command"`
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster,omitempty"`
	// Code is the code of the problem that ends the stream, such as 401; 0 while it goes on.
	Code int `json:"code,omitempty"`
}

type row struct {
	Namespace    string              `json:"namespace"`
	Name         string              `json:"name"`
	State        string              `json:"state"`
	Severity     string              `json:"severity"`
	Acknowledged bool                `json:"acknowledged"`
	By           string              `json:"by,omitempty"`       // who acknowledged it
	Assignee     string              `json:"assignee,omitempty"` // who works on it
	Untold       string              `json:"untold,omitempty"`   // why no Alertmanager tells people of it
	Count        int64               `json:"count"`
	Opened       *v1alpha1.Timestamp `json:"opened,omitempty"`
	Resolved     *v1alpha1.Timestamp `json:"resolved,omitempty"`
	Last         *v1alpha1.Timestamp `json:"last,omitempty"`
	Title        string              `json:"title"`
	Host         string              `json:"host,omitempty"`
	Integration  string              `json:"integration"`
	Key          string              `json:"key"`
	Labels       map[string]string   `json:"labels,omitempty"`
	Gone         bool                `json:"gone,omitempty"` // the Incident was deleted
}

// stream sends all rows, and then changed rows, as lines of JSON until the browser disconnects.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, who *caller) error {
	watched, err := s.access.join(r.Context(), who)
	if err != nil {
		return err
	}
	defer watched.leave()
	answer := newLines(w)
	ticker := time.NewTicker(settle)
	defer ticker.Stop()
	var sent map[types.NamespacedName]string
	for complete := false; ; {
		// Read the number of changes and Synced before the Incidents: if Synced is true, they are complete.
		changes, synced := watched.changes.Load(), watched.feed.Synced()
		m := message{
			Whole: sent == nil, Synced: complete, Scope: who.namespace, Age: watched.feed.Age().Seconds(),
			Command: cmp.Or(s.Command, "kubectl tocsin"), Cluster: s.ClusterName,
		}
		if problem := watched.problem(); problem != nil {
			m.Whole = true // without rows
			m.Code, m.Problem = problemOf(problem)
			answer.send(m)
			return nil
		}
		problem := watched.feed.Problem()
		if problem != nil {
			m.Problem = live.Sentence(problem)
		}
		var rows []row
		if live.Denied(problem) { // a user who may not list any more gets no more rows
			synced = complete
		} else {
			rows, sent = changedRows(watched.feed.Incidents(), sent)
			sent = watched.share(sent)
		}
		complete = synced
		if !answer.sendRows(m, rows, complete) || !watched.awaitChange(r.Context(), ticker, changes) {
			return nil
		}
	}
}

// sendRows sends a message with rows, in parts of which the last one is synced, and reports whether the browser still listens.
func (l *lines) sendRows(m message, rows []row, synced bool) bool {
	for ; len(rows) > rowChunk; rows = rows[rowChunk:] {
		m.Rows = rows[:rowChunk]
		if !l.send(m) {
			return false
		}
		m.Whole = false
	}
	m.Rows, m.Synced = rows, synced
	return l.send(m)
}

// awaitChange waits for a change after so many of them, or for the next heartbeat. It returns false when ctx ends.
func (w *watch) awaitChange(ctx context.Context, ticker *time.Ticker, changes int64) bool {
	for last, quiet := time.Now(), true; quiet; quiet = w.changes.Load() == changes && time.Since(last) < heartbeat {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
	return true
}

// changedRows returns the rows of Incidents that changed or were deleted since they were sent, and the new versions of all.
func changedRows(
	incidents []*v1alpha1.Incident, sent map[types.NamespacedName]string,
) (rows []row, versions map[types.NamespacedName]string) {
	versions = make(map[types.NamespacedName]string, len(incidents))
	for _, incident := range incidents {
		key := client.ObjectKeyFromObject(incident)
		versions[key] = incident.ResourceVersion
		if version, known := sent[key]; !known || version != incident.ResourceVersion {
			rows = append(rows, makeRow(incident))
		}
	}
	for key := range sent {
		if _, found := versions[key]; !found {
			rows = append(rows, row{Namespace: key.Namespace, Name: key.Name, Gone: true})
		}
	}
	return rows, versions
}

func makeRow(incident *v1alpha1.Incident) row {
	status := &incident.Status
	made := row{
		Namespace:    incident.Namespace,
		Name:         incident.Name,
		State:        string(status.State),
		Severity:     string(status.Alert.Severity),
		Acknowledged: live.IsAcknowledged(incident),
		Untold:       string(live.Untold(incident)),
		Count:        status.AlertCount,
		Opened:       status.OpenedTime,
		Resolved:     status.ResolvedTime,
		Last:         status.LastAlertTime,
		Title:        status.Alert.Title,
		Host:         status.Alert.Hostname,
		Integration:  incident.Spec.IntegrationName,
		Key:          incident.Spec.DedupKey,
		Labels:       map[string]string{},
	}
	if made.Acknowledged && status.Acknowledgement != nil {
		made.By = status.Acknowledgement.By
	}
	if status.Assignee != nil {
		made.Assignee = status.Assignee.Name
	}
	names := slices.Sorted(maps.Keys(status.Alert.Labels)) // in no order, a search would find another row each time
	for _, name := range names[:min(len(names), maxRowLabels)] {
		made.Labels[firstChars(name, maxLabelChars)] = firstChars(status.Alert.Labels[name], maxLabelChars)
	}
	return made
}

func firstChars(text string, most int) string {
	chars := []rune(text)
	return string(chars[:min(len(chars), most)])
}

// openIncident is an Incident as programs such as Grafana read it.
type openIncident struct {
	row
	// Path leads to the Incident, from the address of the page.
	Path string `json:"path"`
}

// joinSynced returns the watch of a caller once it has all Incidents: the watch for a new token begins without any.
func (s *Server) joinSynced(ctx context.Context, who *caller) (*watch, error) {
	w, err := s.access.join(ctx, who)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*readTimeout)
	defer cancel()
	err = wait.PollUntilContextCancel(ctx, settle, true, func(context.Context) (bool, error) {
		return w.feed.Synced(), w.problem()
	})
	if err != nil {
		w.leave()
	}
	return w, err
}

// incidents returns the open Incidents, the most urgent first, to programs such as Grafana.
func (s *Server) incidents(w http.ResponseWriter, r *http.Request, who *caller) error {
	watched, err := s.joinSynced(r.Context(), who)
	if err != nil {
		return err
	}
	defer watched.leave()
	if err := watched.feed.Problem(); err != nil {
		return err // a program does not see how old the rows are
	}
	open := slices.DeleteFunc(watched.feed.Incidents(), func(incident *v1alpha1.Incident) bool {
		return incident.Status.State != v1alpha1.IncidentOpen
	})
	slices.SortFunc(open, live.ByUrgency)
	rows := make([]openIncident, len(open))
	for i, incident := range open {
		rows[i] = openIncident{makeRow(incident), incidentPath + incident.Namespace + "/" + incident.Name}
	}
	writeJSON(w, http.StatusOK, rows)
	return nil
}
