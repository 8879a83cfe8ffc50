package incident

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// labelTimeout bounds how long a fold waits for the labels of its Incident, which an admission webhook may delay.
const labelTimeout = 5 * time.Second

// createLabelled creates an Incident, without its labels if the API server rejects it with them.
func (r *reconciler) createLabelled(ctx context.Context, incident *v1alpha1.Incident) error {
	err := r.live.Create(ctx, incident)
	blocked := asBlocked(err)
	if blocked == nil || blocked.reason != v1alpha1.ReasonIncidentRejected || len(incident.Labels) == 0 || !isRejected(err) {
		return err
	}
	log.FromContext(ctx).Info("The Incident was rejected, creating it without labels", "rejection", err.Error())
	incident.Labels = nil
	return r.live.Create(ctx, incident)
}

// label sets the labels of an episode that begins, and returns the Incident as it is then; nil labels change nothing. It comes
// before the status: after a crash in between, the next fold begins the episode again and finds the labels. The patch succeeds
// only on the Incident that was read, so the status may be written over its result. If it fails, the fold goes on without it.
func (r *reconciler) label(
	ctx context.Context, read *v1alpha1.Incident, labels map[string]string,
) *v1alpha1.Incident {
	if labels == nil {
		return read
	}
	ctx, cancel := context.WithTimeout(ctx, labelTimeout)
	defer cancel()
	labelled, err := r.patchLabels(ctx, read, labels)
	switch {
	case err == nil:
		return labelled
	case apierrors.IsConflict(err), apierrors.IsNotFound(err): // and so will the write of the status
	default:
		log.FromContext(ctx).Info("The labels of the Incident are not set", "cause", err.Error())
	}
	return read
}

func (r *reconciler) patchLabels(
	ctx context.Context, read *v1alpha1.Incident, labels map[string]string,
) (*v1alpha1.Incident, error) {
	has := read.Labels
	if read.Status.State == v1alpha1.IncidentOpen { // it is from the cache, which has no labels
		stored, err := readIncident(ctx, r.live, client.ObjectKeyFromObject(read))
		if err != nil {
			return nil, err
		}
		if stored == nil || stored.ResourceVersion != read.ResourceVersion {
			return read, nil // the write of the status will conflict
		}
		has = stored.Labels
	}
	wanted := withLabels(has, labels)
	if maps.Equal(has, wanted) {
		return read, nil
	}
	before := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{
		Namespace: read.Namespace, Name: read.Name, ResourceVersion: read.ResourceVersion, Labels: has,
	}}
	answer := before.DeepCopy()
	answer.UID, answer.Labels = read.UID, wanted // with the UID, the patch fails on another object of the name
	if err := r.live.Patch(ctx, answer, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("patching labels: %w", err)
	}
	labelled := *read
	labelled.ResourceVersion = answer.ResourceVersion
	return &labelled, nil
}

// withLabels returns the labels of an Incident with those that begin with AlertLabelPrefix replaced: the others are not ours.
func withLabels(has, wanted map[string]string) map[string]string {
	labels := maps.Clone(wanted)
	for key, value := range has {
		if !strings.HasPrefix(key, v1alpha1.AlertLabelPrefix) {
			labels[key] = value
		}
	}
	return labels
}
