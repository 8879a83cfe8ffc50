package fold

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// labelMarks are the characters of a label's value that it can neither begin nor end with.
const labelMarks = "-_."

// labelObject plans the labels of the Incident object for an episode that begins. They are those of its first alert: the same
// however many alerts are folded at once, and the same again after a crash. While its integration is deleted, an Incident keeps
// the labels that it has.
func (f *folding) labelObject() {
	if f.in.Policy.Absent {
		return
	}
	labels := map[string]string{}
	for _, name := range f.in.Policy.ObjectLabels {
		if value := labelValue(f.status.Alert.Labels[name]); value != "" {
			labels[v1alpha1.AlertLabelPrefix+name] = value
		}
	}
	f.plan.ObjectLabels = labels
}

// labelValue returns a text as the value of a label: itself if it is one, empty if nothing of it can be one.
func labelValue(text string) string {
	value := strings.Trim(strings.Map(labelChar, text), labelMarks)
	return strings.TrimRight(value[:min(len(value), validation.LabelValueMaxLength)], labelMarks)
}

func labelChar(c rune) rune {
	if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(labelMarks, c) {
		return c
	}
	return '_'
}
