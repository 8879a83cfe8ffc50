package archive

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Cached is what the cache of the archiver's manager has: the names of the Incidents that wait for the archive, and when they
// were resolved.
func Cached() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&v1alpha1.Incident{}: {
		Field:     fields.OneTermEqualSelector(v1alpha1.ArchiveStateField, string(v1alpha1.ArchiveWaiting)),
		Transform: toName,
	}}
}

// toName keeps the name of an Incident, and when it was resolved.
func toName(object any) (any, error) {
	incident, ok := object.(*v1alpha1.Incident)
	if !ok {
		return object, nil
	}
	return &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: incident.Namespace, Name: incident.Name, UID: incident.UID, ResourceVersion: incident.ResourceVersion,
		},
		Status: v1alpha1.IncidentStatus{ResolvedTime: incident.Status.ResolvedTime},
	}, nil
}
