package controllers

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// Archive tells which ended episodes are archived. Package archive implements it.
type Archive interface {
	conditionSource

	// Deleted forgets an Incident that was deleted. Nothing tells of one that a user deletes after it was resolved.
	Deleted(incident *v1alpha1.Incident)

	// Archived reports whether an episode of an Incident is in the archive, in the version with this digest.
	Archived(incident types.UID, number int64, digest string) bool
}

// isArchived reports whether nothing is lost from the archive if exactly this version of the Incident is deleted.
func isArchived(archive Archive, incident *v1alpha1.Incident) bool {
	if archive == nil {
		return true
	}
	for _, episode := range fold.EndedEpisodes(&incident.Status) {
		if !archive.Archived(incident.UID, episode.Number, episode.Digest) {
			return false
		}
	}
	return true
}

// archived tells a fold which episodes of an observed Incident are archived; nil without an archive.
func (r *incidentReconciler) archived(o *observed) fold.IsArchived {
	if r.archive == nil {
		return nil
	}
	return func(number int64, digest string) bool {
		return o.incident != nil && r.archive.Archived(o.incident.UID, number, digest)
	}
}
