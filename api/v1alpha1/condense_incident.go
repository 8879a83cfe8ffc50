package v1alpha1

import "unique"

// Condense reduces the size of a cached Incident: it removes the metadata that no decision depends on, of which users may write
// much. To condense an Incident twice changes nothing.
func (i *Incident) Condense() {
	i.ManagedFields, i.Annotations, i.Labels, i.Finalizers, i.OwnerReferences = nil, nil, nil, nil, nil
	i.GenerateName = ""
	i.Namespace = intern(i.Namespace)
	i.Spec.IntegrationName = intern(i.Spec.IntegrationName)
	i.Status.Alert.LimitKeys() // an earlier version did not
}

// intern returns one copy of equal strings: thousands of Incidents have the same few.
func intern[S ~string](s S) S { return unique.Make(s).Value() }
