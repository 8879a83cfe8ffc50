package clustercache

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// Condense is the transform of the cache for the kinds that have none of their own: it removes the metadata that nothing reads.
// Otherwise a tenant could write 1 MiB of it on each object, and fill the memory of every replica. A second call changes nothing.
func Condense(object any) (any, error) {
	switch object := object.(type) {
	case *v1alpha1.Incident:
		RemoveMetadata(&object.ObjectMeta)
		object.Spec.IntegrationName = queue.Intern(object.Spec.IntegrationName)
		alertcontent.LimitKeys(&object.Status.Alert) // the operator does, but others may write a status
	case *v1alpha1.MaintenanceWindow:
		RemoveMetadata(&object.ObjectMeta)
	case *v1alpha1.IncidentSummary:
		manager := object.Labels[v1alpha1.ManagedByLabel]
		if RemoveMetadata(&object.ObjectMeta); manager == v1alpha1.FieldManager {
			object.Labels = map[string]string{v1alpha1.ManagedByLabel: v1alpha1.FieldManager}
		}
	}
	return object, nil
}

// RemoveMetadata removes the metadata that nothing reads, all labels as well.
func RemoveMetadata(m *metav1.ObjectMeta) {
	m.ManagedFields, m.Annotations, m.Labels, m.Finalizers, m.OwnerReferences, m.GenerateName = nil, nil, nil, nil, nil, ""
	m.Namespace = queue.Intern(m.Namespace)
}
