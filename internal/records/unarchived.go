package records

import (
	"fmt"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// Of returns the records of an Incident: of the episodes in status.unarchivedEpisodes, and of the last one as Last does. Episodes
// that cannot be decoded are left out and returned as errors.
func Of(incident *v1alpha1.Incident) (records []Record, errs []error) {
	for i := range incident.Status.UnarchivedEpisodes {
		episode, err := fold.UnpackEpisode(&incident.Status.UnarchivedEpisodes[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("episode %d: %w", incident.Status.UnarchivedEpisodes[i].Number, err))
			continue
		}
		records = append(records, New(incident, episode))
	}
	return append(records, Last(incident)...), errs
}
