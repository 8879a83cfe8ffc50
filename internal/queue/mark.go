package queue

import (
	"hash/maphash"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// allIncidents stands for all Incidents in a mark.
const allIncidents = "*"

// MaxMarkBytes bounds a mark: v1alpha1.MaxAlertsPerEvent names and a resourceVersion.
const MaxMarkBytes = 160 << 10

// Mark is the annotation that says for which Incidents an AlertEvent is settled: its alerts are folded into them, or match none
// of them. Users can write the annotation, too: MarkOf decides what is believed, and bounds what it parses; ReduceMark bounds
// what the cache keeps.
type Mark struct {
	// ResourceVersion is the AlertEvent's place in commit order: the one that it had before the first mark.
	ResourceVersion string

	// All says that the AlertEvent is settled for all its Incidents.
	All bool

	// Incidents are names, sorted; none if All is set.
	Incidents []string
}

// MarkOf returns the mark of an AlertEvent, or of its metadata. A mark with a resourceVersion that is not older than the object's
// own is not believed, nor one that names more Incidents than an AlertEvent can have: its names would take many times its bytes.
func MarkOf(event metav1.Object) (mark Mark, ok bool) {
	text, ok := event.GetAnnotations()[v1alpha1.SettledAnnotation]
	if !ok {
		return mark, false
	}
	version, names, ok := strings.Cut(text, "/")
	if len(text) > MaxMarkBytes || strings.Count(names, ",") >= v1alpha1.MaxAlertsPerEvent {
		return mark, false
	}
	if !ok || !NewerVersion(event.GetResourceVersion(), version) {
		return mark, false
	}
	mark.ResourceVersion = version
	if names == allIncidents {
		mark.All = true
	} else {
		mark.Incidents = strings.Split(names, ",")
		slices.Sort(mark.Incidents)
	}
	return mark, true
}

// ReduceMark removes from the annotation of an AlertEvent what means nothing: the names of Incidents that its alerts do not
// belong to, or the whole, if MarkOf does not believe it. So the memory of a mark is bounded by that of the alerts.
func ReduceMark(event *v1alpha1.AlertEvent, alerts []v1alpha1.Alert) {
	if _, ok := event.Annotations[v1alpha1.SettledAnnotation]; !ok {
		return
	}
	mark, ok := MarkOf(event)
	if !ok {
		if delete(event.Annotations, v1alpha1.SettledAnnotation); len(event.Annotations) == 0 {
			event.Annotations = nil
		}
		return
	}
	own := sets.New[string]()
	for i := range alerts {
		own.Insert(event.IncidentNameFor(&alerts[i]))
	}
	mark.Incidents = slices.DeleteFunc(slices.Compact(mark.Incidents), func(name string) bool { return !own.Has(name) })
	event.Annotations[v1alpha1.SettledAnnotation] = mark.String()
}

// Settles reports whether the AlertEvent is settled for an Incident.
func (m *Mark) Settles(incident string) bool {
	if m.All {
		return true
	}
	_, found := slices.BinarySearch(m.Incidents, incident)
	return found
}

// MarkedNames is the Incidents of a mark in little memory, 4 KiB at most: the hashes of their names. Two have the same hash with
// a probability of 2^-64, which nobody can influence.
type MarkedNames struct {
	all    bool
	hashes []uint64 // sorted
}

var markSeed = maphash.MakeSeed()

// Names returns the Incidents of the mark.
func (m *Mark) Names() MarkedNames {
	names := MarkedNames{all: m.All}
	if len(m.Incidents) > 0 {
		names.hashes = make([]uint64, len(m.Incidents))
		for i, name := range m.Incidents {
			names.hashes[i] = maphash.String(markSeed, name)
		}
		slices.Sort(names.hashes)
	}
	return names
}

// Has reports whether the AlertEvent is settled for an Incident.
func (n *MarkedNames) Has(incident string) bool {
	if n.all || len(n.hashes) == 0 {
		return n.all
	}
	_, found := slices.BinarySearch(n.hashes, maphash.String(markSeed, incident))
	return found
}

// With returns the mark with further Incidents.
func (m *Mark) With(incidents []string) Mark {
	union := slices.Concat(m.Incidents, incidents)
	slices.Sort(union)
	return Mark{ResourceVersion: m.ResourceVersion, All: m.All, Incidents: slices.Compact(union)}
}

// String returns the value of SettledAnnotation.
func (m *Mark) String() string {
	if m.All {
		return m.ResourceVersion + "/" + allIncidents
	}
	return m.ResourceVersion + "/" + strings.Join(m.Incidents, ",")
}
