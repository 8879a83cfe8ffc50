package testenv

import (
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Window returns a MaintenanceWindow that is open once, for all integrations of its namespace.
func Window(namespace, name string, start, end time.Time) v1alpha1.MaintenanceWindow {
	window := v1alpha1.MaintenanceWindow{}
	window.Namespace, window.Name = namespace, name
	window.Spec.Once = &v1alpha1.SingleOpening{StartTime: v1alpha1.NewTimestamp(start), EndTime: v1alpha1.NewTimestamp(end)}
	return window
}
