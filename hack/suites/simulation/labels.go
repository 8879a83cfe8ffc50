package simulation

import (
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// judgeLabels judges a write of an Incident by a replica: the labels of other people stay, and an update that changes labels
// counts no alert.
func (m *mutes) judgeLabels(key types.NamespacedName, before, after *v1alpha1.Incident) {
	if before == nil {
		return
	}
	if was, is := othersLabels(before), othersLabels(after); !maps.Equal(was, is) {
		m.found.Add("L: %s had the labels %v of others, and has %v", key, was, is)
	}
	if !maps.Equal(before.Labels, after.Labels) && before.Status.AlertCount != after.Status.AlertCount {
		m.found.Add("L: %s has other labels and other alerts after one write", key)
	}
}

// othersLabels returns the labels of an Incident that are not the operator's.
func othersLabels(incident *v1alpha1.Incident) map[string]string {
	others := maps.Clone(incident.Labels)
	maps.DeleteFunc(others, func(key, _ string) bool { return strings.HasPrefix(key, v1alpha1.AlertLabelPrefix) })
	return others
}
