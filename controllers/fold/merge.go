package fold

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/origins"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// Bounds of AlertContent.title, in characters and, as JSON, in bytes.
const (
	maxTitleChars = v1alpha1.MaxLineChars
	maxTitleBytes = 6 * maxTitleChars
)

// Content that no alert gave and the integration has no default for.
const (
	defaultSeverity = v1alpha1.SeverityWarning
	defaultType     = "webhook"
	defaultTitle    = "Alert from "
)

// The entries of custom for the texts of a resolve, and what two of them add to an encoded content beside the texts.
const (
	resolvedTitle       = "resolved_title"
	resolvedDescription = "resolved_description"
	resolvedTextsSize   = len(`,"custom":{}`) + len(resolvedTitle) + len(resolvedDescription) + 2*len(`"":"",`)
)

// mergeContent folds a newer alert's content into that of an episode. Present fields replace, absent ones
// stay; bags merge key by key; the earliest startTime stays. into and newer share nothing.
func mergeContent(into, newer *v1alpha1.AlertContent) {
	into.Title = cmp.Or(newer.Title, into.Title)
	into.Description = cmp.Or(newer.Description, into.Description)
	into.Severity = cmp.Or(newer.Severity, into.Severity)
	mergeDetails(into, newer)
}

// mergeResolve folds the content of a resolve into that of an episode. Many senders describe the recovery in it, as
// "[RESOLVED] …" and with the severity "ok". The Incident keeps the problem's title, description and severity; the
// texts of the resolve go to custom.
func mergeResolve(into, newer *v1alpha1.AlertContent) {
	for _, text := range []struct{ key, problem, recovery string }{
		{resolvedTitle, into.Title, newer.Title},
		{resolvedDescription, into.Description, newer.Description},
	} {
		if text.recovery == "" || text.recovery == text.problem {
			continue
		}
		if encoded, err := json.Marshal(text.recovery); err == nil { // no string fails to encode
			mergeBag(&into.Custom, v1alpha1.Bag{text.key: encoded})
		}
	}
	mergeDetails(into, newer)
}

// mergeDetails folds everything but the title, the description and the severity.
func mergeDetails(into, newer *v1alpha1.AlertContent) {
	into.Type = cmp.Or(newer.Type, into.Type)
	into.Link = cmp.Or(newer.Link, into.Link)
	into.Hostname = cmp.Or(newer.Hostname, into.Hostname)
	into.Region = cmp.Or(newer.Region, into.Region)
	into.Preset = cmp.Or(newer.Preset, into.Preset)
	mergeBag(&into.Labels, newer.Labels)
	mergeBag(&into.Annotations, newer.Annotations)
	mergeBag(&into.Values, newer.Values.DeepCopy())
	mergeBag(&into.Custom, newer.Custom.DeepCopy())
	if isSet(newer.StartTime) && (!isSet(into.StartTime) || newer.StartTime.Before(into.StartTime.Time)) {
		into.StartTime = newer.StartTime.DeepCopy()
	}
	if isSet(newer.EndTime) {
		into.EndTime = newer.EndTime.DeepCopy()
	}
}

func mergeBag[M ~map[string]V, V any](into *M, newer M) {
	if len(newer) > 0 && *into == nil {
		*into = make(M, len(newer))
	}
	maps.Copy(*into, newer)
}

// mergeOrigins returns where a content comes from that an alert was merged into. What people report has no origins, and
// changes none.
func mergeOrigins(content *v1alpha1.AlertContent, a *receivedAlert) string {
	if a.IsReport {
		return content.Origins
	}
	var kept []origins.Field
	if a.Status == v1alpha1.AlertResolved {
		kept = append(kept, origins.Title, origins.Description, origins.Severity)
	}
	if isSet(a.StartTime) && !a.StartTime.Equal(content.StartTime.Time) {
		kept = append(kept, origins.StartsAt)
	}
	return origins.Merge(content.Origins, a.Origins, kept...)
}

// fillContent sets the fields that no alert had: a severity, a type, a title, and the default
// labels whose keys it lacks.
func fillContent(content *v1alpha1.AlertContent, defaults *v1alpha1.AlertDefaults, integration string) {
	if defaults == nil {
		defaults = &v1alpha1.AlertDefaults{}
	}
	if content.Severity == "" {
		content.Severity = cmp.Or(defaults.Severity, defaultSeverity)
		content.Origins = origins.Set(content.Origins, origins.Severity, kindOfDefault(string(defaults.Severity)))
	}
	if content.Type == "" {
		content.Type = cmp.Or(defaults.Type, defaultType)
		content.Origins = origins.Set(content.Origins, origins.Type, kindOfDefault(defaults.Type))
	}
	if content.Title == "" { // the first line of a description takes a while to find
		line, kind := firstLine(content.Description), origins.FirstLine
		if line == "" {
			kind = kindOfDefault(defaults.Title)
		}
		content.Title = cmp.Or(line, defaults.Title, defaultTitle+integration)
		content.Origins = origins.Set(content.Origins, origins.Title, kind)
	}
	for key, value := range defaults.Labels {
		if _, present := content.Labels[key]; !present {
			mergeBag(&content.Labels, map[string]string{key: string(value)})
		}
	}
}

// kindOfDefault returns the origin of a field for which the integration has this default.
func kindOfDefault(own string) origins.Kind {
	if own == "" {
		return origins.BuiltIn
	}
	return origins.Default
}

// boundContent keeps merged content within alertcontent.MaxBytes and MaxKeys: the newest alert's bags replace the
// merged ones, and when that is not enough, the largest entries go, and the bags with most keys become texts. It returns a
// description of the changes, empty when there are none.
func boundContent(content, newest *v1alpha1.AlertContent, defaults *v1alpha1.AlertDefaults, integration string) string {
	if alertcontent.Size(content) <= alertcontent.MaxBytes && alertcontent.Keys(content) <= alertcontent.MaxKeys {
		return ""
	}
	message := "The merged content was too large"
	if alertcontent.Keys(newest) > 0 {
		bags := newest.DeepCopy()
		content.Labels, content.Annotations, content.Values, content.Custom = bags.Labels, bags.Annotations, bags.Values, bags.Custom
		fillContent(content, defaults, integration)
		message += "; the newest alert's bags replaced the older ones"
	}
	dropped, replaced := alertcontent.Bound(content)
	if len(replaced) > 0 {
		message += "; kept as text: " + strings.Join(replaced, ", ")
	}
	if len(dropped) > 0 {
		message += "; dropped " + strings.Join(dropped, ", ")
	}
	return plaintext.ShortMessage(message)
}

// defaultsSize returns an upper bound of the size that defaults add to an encoded content.
func defaultsSize(defaults *v1alpha1.AlertDefaults) int {
	if defaults == nil {
		return 0
	}
	const perByte, perEntry = 6, 8 // an escaped byte, and quotes, colon and comma
	size := perByte * (len(defaults.Title) + len(defaults.Type))
	for key, value := range defaults.Labels {
		size += perByte*(len(key)+len(value)) + perEntry
	}
	return size
}

// firstLine is the first line of a text that is not blank, fit for a title.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		if line = plaintext.OneLine(line, maxTitleChars, maxTitleBytes); line != "" {
			return line
		}
	}
	return ""
}

// rejectedTitle is the title of an episode whose content is not kept.
const rejectedTitle = "The content of the alerts is not kept"

// WithoutContent returns the plan with a status that has nothing of the alerts' texts, because the API server rejects the whole
// one, or there is no space for it: state, conditions, counts, times, severity and ledger. The content is the stored one of the
// same episode, else a fixed title; a type of KeptTypes stays. The timeline records the reason; repeats add no second
// entry until another transition is recorded.
func (p *Plan) WithoutContent(stored *v1alpha1.IncidentStatus, policy *Policy, reason string, now time.Time) Plan {
	bare := *p
	bare.Status, bare.Transitions = *p.Status.DeepCopy(), nil
	status := &bare.Status
	known := status.Alert
	if status.Episode != nil {
		status.Episode.Title = ""
	}
	status.Alert = v1alpha1.AlertContent{Title: rejectedTitle, Type: defaultType}
	if stored.Episode != nil && status.Episode != nil && stored.Episode.Number == status.Episode.Number {
		status.Alert, status.Episode.Title = *stored.Alert.DeepCopy(), stored.Episode.Title
	}
	if slices.Contains(policy.KeptTypes, known.Type) {
		status.Alert.Type = known.Type
	}
	status.Alert.Severity, status.Alert.Preset = known.Severity, known.Preset
	status.Alert.StartTime, status.Alert.EndTime = known.StartTime, known.EndTime // they tell what is late
	for _, r := range policy.allRules() {
		r.bare(status, stored, policy, now)
	}
	if status.Acknowledgement != nil {
		status.Acknowledgement.Comment = ""
	}
	status.Timeline = slices.Clone(status.Timeline[:max(0, len(status.Timeline)-len(p.Transitions))]) // the entries of earlier folds
	for i := range p.Transitions {
		entry := &p.Transitions[i]
		bare.AddEntry(v1alpha1.Transition{Type: entry.Type, Time: entry.Time, Severity: entry.Severity})
	}
	bare.addEntryOnce(v1alpha1.Transition{Type: v1alpha1.TransitionContentRejected, Time: *timestamp(now), Message: reason})
	return bare
}
