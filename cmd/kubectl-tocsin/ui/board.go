package ui

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/live"
)

const (
	// maxGone is the number of deleted Incidents to remember, for browsers that do not know of the deletion yet.
	maxGone = 1000

	// maxRowLabels and maxLabelChars bound the labels that can be searched.
	maxRowLabels  = 32
	maxLabelChars = 200
)

// row is an Incident in the list.
type row struct {
	Namespace    string              `json:"namespace"`
	Name         string              `json:"name"`
	State        string              `json:"state"`
	Severity     string              `json:"severity"`
	Acknowledged bool                `json:"acknowledged"`
	Silenced     bool                `json:"silenced,omitempty"`
	Count        int64               `json:"count"`
	Opened       *v1alpha1.Timestamp `json:"opened,omitempty"`
	Resolved     *v1alpha1.Timestamp `json:"resolved,omitempty"`
	Last         *v1alpha1.Timestamp `json:"last,omitempty"`
	Title        string              `json:"title"`
	Host         string              `json:"host,omitempty"`
	Integration  string              `json:"integration"`
	Key          string              `json:"key"`
	Labels       map[string]string   `json:"labels,omitempty"`
	Gone         bool                `json:"gone,omitempty"`
}

// board holds the rows, and returns those that changed since a sequence number.
type board struct {
	mu       sync.Mutex
	sequence uint64 // of the newest change; starts at 1, since 0 asks for all rows
	rows     map[string]entry
	gone     []string // keys of rows of deleted Incidents, oldest first
	complete uint64   // all changes with higher numbers are remembered
	changed  chan struct{}
}

type entry struct {
	row
	sequence uint64
}

func newBoard() *board {
	return &board{sequence: 1, rows: map[string]entry{}, changed: make(chan struct{})}
}

// note records a change.
func (b *board) note(change live.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	made := makeRow(change.Incident)
	made.Gone = change.Deleted
	key := made.Namespace + "/" + made.Name
	b.sequence++
	b.rows[key] = entry{made, b.sequence}
	if change.Deleted {
		b.gone = append(b.gone, key)
		b.forget()
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

// forget removes the oldest rows of deleted Incidents.
func (b *board) forget() {
	for len(b.gone) > maxGone {
		key := b.gone[0]
		b.gone = b.gone[1:]
		if old, found := b.rows[key]; found && old.Gone {
			b.complete = max(b.complete, old.sequence)
			delete(b.rows, key)
		}
	}
}

// since returns the rows that changed after a sequence number, the number for the next call, and a channel that is
// closed at the next change. If whole is true, it returns all rows, and others that the caller knows no longer exist.
func (b *board) since(sequence uint64) (rows []row, next uint64, whole bool, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	whole = sequence == 0 || sequence < b.complete
	for _, e := range b.rows {
		if whole && !e.Gone || !whole && e.sequence > sequence {
			rows = append(rows, e.row)
		}
	}
	return rows, b.sequence, whole, b.changed
}

func makeRow(incident *v1alpha1.Incident) row {
	status := &incident.Status
	made := row{
		Namespace:    incident.Namespace,
		Name:         incident.Name,
		State:        string(status.State),
		Severity:     string(status.Alert.Severity),
		Acknowledged: meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionAcknowledged),
		Silenced:     meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionSilenced),
		Count:        status.AlertCount,
		Opened:       status.OpenedTime,
		Resolved:     status.ResolvedTime,
		Last:         status.LastAlertTime,
		Title:        status.Alert.Title,
		Host:         status.Alert.Hostname,
		Integration:  incident.Spec.IntegrationName,
		Key:          incident.Spec.DedupKey,
	}
	for name, value := range status.Alert.Labels {
		if len(made.Labels) == maxRowLabels {
			break
		}
		if made.Labels == nil {
			made.Labels = map[string]string{}
		}
		made.Labels[firstChars(name)] = firstChars(live.Text(value))
	}
	return made
}

func firstChars(s string) string {
	chars := []rune(s)
	return string(chars[:min(len(chars), maxLabelChars)])
}
