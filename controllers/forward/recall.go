package forward

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// forwardedSet identifies the set of an Incident that fires in an Alertmanager.
type forwardedSet struct {
	incidentKey
	severity v1alpha1.Severity
}

// recall has the memory know with which labels an earlier leader has posted a muted Incident: they stay as they are, and the
// status has no labels of before. Alertmanager is asked once in a term. Without an answer, the Incident has its labels of now.
func (s *sender) recall(
	ctx context.Context, client *httpClient, key incidentKey, mute *v1alpha1.Mute, sets []set, config *Config,
) {
	if mute == nil || mute.ForwardedSeverity == "" || len(sets) == 0 || s.memory[key] != nil || client == nil {
		return
	}
	if s.recalled == nil {
		s.ask(ctx, client)
	}
	before, now := s.recalled[forwardedSet{key, mute.ForwardedSeverity}], map[string]string{}
	_ = json.Unmarshal([]byte(sets[0].labels), &now) // labelsOf encoded them
	if before == nil {
		return
	}
	// Anyone can post. Accept the old labels only if those that senders cannot influence are equal.
	for _, labels := range []map[string]string{now, before} {
		for name, value := range labels {
			isSenders := name == labelAlertname || slices.Contains(config.AlertLabels, name)
			if !isSenders && (now[name] != value || before[name] != value) {
				return
			}
		}
	}
	encoded, _ := json.Marshal(before) // strings always encode
	s.memory[key] = &posted{labels: string(encoded)}
}

// ask notes what Alertmanager knows.
func (s *sender) ask(ctx context.Context, client *httpClient) {
	s.recalled = map[forwardedSet]map[string]string{}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	query := url.Values{"filter": {labelIncident + `!=""`}}
	err := list(ctx, client, "alerts", query, func(known *struct{ Labels map[string]string }) {
		of := known.Labels
		severity := v1alpha1.Severity(of[labelSeverity])
		delete(of, labelSeverity)
		if key := (incidentKey{of[labelNamespace], of[labelIncident]}); s.mayRecall(key, severity) {
			s.recalled[forwardedSet{key, severity}] = of
		}
	})
	if err != nil {
		s.log.Info("Alertmanager does not tell the labels of muted Incidents; those of now are used", "reason", err.Error())
	}
}

// mayRecall reports whether an Incident may be muted that was forwarded with the severity. Alertmanager may have many others,
// also of other installations.
func (s *sender) mayRecall(key incidentKey, severity v1alpha1.Severity) bool {
	entry, _, known := s.term.index.get(key)
	if !known || entry.open == nil {
		return known || !s.term.swept.Load()
	}
	mute := entry.open.Status.Mute
	return mute != nil && mute.ForwardedSeverity == severity
}
