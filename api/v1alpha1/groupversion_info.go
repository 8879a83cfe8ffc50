// Package v1alpha1 holds the resources of tocsin.dev/v1alpha1 and the names derived from them.
//
// A WebhookIntegration authorizes senders. Each accepted alert is stored in an AlertEvent, the durable queue, and the
// alerts with one dedup key are folded into one Incident.
//
// +kubebuilder:object:generate=true
// +groupName=tocsin.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The rules type(self) == int are for API servers of Kubernetes 1.31. They accept a number such as 1.0000000001 as an integer.
// An informer that cannot decode one object sees none of its kind, in any namespace; with a rule, the API server rejects it.

var (
	// GroupVersion is the group and version of every type in this package.
	GroupVersion = schema.GroupVersion{Group: "tocsin.dev", Version: "v1alpha1"}

	// AddToScheme registers the types of this package with a scheme.
	AddToScheme = schemeBuilder.AddToScheme

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&WebhookIntegration{}, &WebhookIntegrationList{},
		&AlertEvent{}, &AlertEventList{},
		&Incident{}, &IncidentList{},
		&Heartbeat{}, &HeartbeatList{},
		&MaintenanceWindow{}, &MaintenanceWindowList{},
		&RequestCapture{}, &RequestCaptureList{},
		&IncidentSummary{}, &IncidentSummaryList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
