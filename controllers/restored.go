package controllers

import "github.com/tocsin-dev/tocsin/api/v1alpha1"

// restoredAnnotation marks AlertEvents that were restored from a backup. It is set in the cache only, where no managed
// fields tell any more.
const restoredAnnotation = "tocsin.dev/restored"

// TransformAlertEvent is for the cache: it makes an AlertEvent small, and marks it if it was restored from a backup, which
// its managed fields tell.
func TransformAlertEvent(object any) (any, error) {
	event, ok := object.(*v1alpha1.AlertEvent)
	if !ok {
		return object, nil
	}
	restored := event.IsRestored()
	event.Condense() // drops a mark that a user made
	if restored {
		if event.Annotations == nil {
			event.Annotations = map[string]string{}
		}
		event.Annotations[restoredAnnotation] = "true"
	}
	return event, nil
}

// isRestored reports whether the cache has marked the event as restored from a backup.
func isRestored(event *v1alpha1.AlertEvent) bool {
	_, marked := event.Annotations[restoredAnnotation]
	return marked
}
