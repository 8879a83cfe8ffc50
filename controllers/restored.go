package controllers

import "github.com/tocsin-dev/tocsin/api/v1alpha1"

// TransformAlertEvent is for the cache: it makes an AlertEvent small. A second transform of the same object changes nothing.
func TransformAlertEvent(object any) (any, error) {
	if event, ok := object.(*v1alpha1.AlertEvent); ok {
		event.Condense()
	}
	return object, nil
}
