package controllers

import "github.com/tocsin-dev/tocsin/api/v1alpha1"

// TransformIncident is for the cache: it makes an Incident small, see v1alpha1.Incident.Condense.
func TransformIncident(object any) (any, error) {
	if incident, ok := object.(*v1alpha1.Incident); ok {
		incident.Condense()
	}
	return object, nil
}
