package clustercache

import (
	"math"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// restingIncident is a condensed Incident in a third of the memory: two objects for the garbage collector instead of a dozen.
// It is for the cache's store alone; everybody else gets an Incident.
type restingIncident struct {
	namespace, integration string
	severity               v1alpha1.Severity

	// text is the name, the UID, the resourceVersion, the dedup key and the digest, and lengths are theirs in bytes.
	text    string
	lengths [5]uint16

	created                                int64 // in seconds of Unix time
	generation, observedGeneration, alerts int64
	episode, episodeAlerts                 int64
	episodeStart, starts, ends, resolved   int64 // in microseconds of Unix time, or absent; the first with the episode
	retention                              *metav1.Duration
	conditions                             []metav1.Condition
}

// absent stands for a time that an Incident does not have.
const absent = math.MinInt64

// condense makes an Incident small, in place, and returns what the store keeps: a restingIncident if it is Resolved. The few
// Resolved ones that have more than others stay Incidents.
func condense(incident *v1alpha1.Incident) runtime.Object {
	incident.Condense()
	s := &incident.Status
	if !s.Condensed || s.ResolvedTime == nil || s.Silence != nil || s.OrphanedTime != nil || len(s.UnarchivedEpisodes) > 0 ||
		incident.DeletionTimestamp != nil {
		return incident
	}
	r := &restingIncident{
		namespace: incident.Namespace, integration: incident.Spec.IntegrationName, severity: s.Alert.Severity,
		created: incident.CreationTimestamp.Unix(), generation: incident.Generation, observedGeneration: s.ObservedGeneration,
		alerts: s.AlertCount, episodeStart: absent, starts: microseconds(s.Alert.StartsAt), ends: microseconds(s.Alert.EndsAt),
		resolved: microseconds(s.ResolvedTime), retention: s.Retention, conditions: s.Conditions,
	}
	if s.Episode != nil {
		r.episode, r.episodeStart, r.episodeAlerts = s.Episode.Number, microseconds(&s.Episode.StartTime), s.Episode.AlertCount
	}
	texts := []string{incident.Name, string(incident.UID), incident.ResourceVersion, incident.Spec.DedupKey, s.Ledger.Digest}
	for i, text := range texts {
		if len(text) > math.MaxUint16 {
			return incident // the schema permits none
		}
		r.lengths[i] = uint16(len(text))
	}
	r.text = strings.Join(texts, "")
	return r
}

// incident returns what was condensed.
func (r *restingIncident) incident() *v1alpha1.Incident {
	texts := r.texts()
	whole := &struct { // one allocation for all
		v1alpha1.Incident
		episode                v1alpha1.Episode
		starts, ends, resolved v1alpha1.Timestamp
	}{}
	incident := &whole.Incident
	incident.Namespace, incident.Name, incident.UID, incident.ResourceVersion = r.namespace, texts[0], types.UID(texts[1]), texts[2]
	incident.Generation, incident.CreationTimestamp = r.generation, metav1.Unix(r.created, 0)
	incident.Spec = v1alpha1.IncidentSpec{IntegrationName: r.integration, DedupKey: texts[3]}
	incident.Status = v1alpha1.IncidentStatus{
		Condensed: true, State: v1alpha1.IncidentResolved, Conditions: r.conditions, ObservedGeneration: r.observedGeneration,
		AlertCount: r.alerts, ResolvedTime: timestamp(r.resolved, &whole.resolved), Retention: r.retention,
		Ledger: v1alpha1.Ledger{Digest: texts[4]},
		Alert: v1alpha1.AlertContent{
			Severity: r.severity, StartsAt: timestamp(r.starts, &whole.starts), EndsAt: timestamp(r.ends, &whole.ends),
		},
	}
	if start := timestamp(r.episodeStart, &whole.episode.StartTime); start != nil {
		whole.episode.Number, whole.episode.AlertCount = r.episode, r.episodeAlerts
		incident.Status.Episode = &whole.episode
	}
	return incident
}

// texts returns what text is made of.
func (r *restingIncident) texts() (texts [5]string) {
	rest := r.text
	for i, n := range r.lengths {
		texts[i], rest = rest[:n], rest[n:]
	}
	return texts
}

// expand returns an object of the store as everybody else gets it.
func expand(object any) any {
	switch stored := object.(type) {
	case *restingIncident:
		return stored.incident()
	case toolscache.DeletedFinalStateUnknown:
		stored.Obj = expand(stored.Obj)
		return stored
	default:
		return object
	}
}

func microseconds(t *v1alpha1.Timestamp) int64 {
	if t == nil {
		return absent
	}
	return t.UnixMicro()
}

// timestamp stores a time, and returns where; nil if it is absent.
func timestamp(microseconds int64, in *v1alpha1.Timestamp) *v1alpha1.Timestamp {
	if microseconds == absent {
		return nil
	}
	in.Time = time.UnixMicro(microseconds).UTC()
	return in
}

// GetObjectMeta implements metav1.ObjectMetaAccessor, with the metadata that informers look at.
func (r *restingIncident) GetObjectMeta() metav1.Object {
	texts := r.texts()
	return &metav1.ObjectMeta{Namespace: r.namespace, Name: texts[0], UID: types.UID(texts[1]), ResourceVersion: texts[2]}
}

// GetObjectKind implements runtime.Object.
func (r *restingIncident) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (r *restingIncident) DeepCopyObject() runtime.Object { return r.incident() }
