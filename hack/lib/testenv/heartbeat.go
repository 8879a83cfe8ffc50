package testenv

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Heartbeat returns a Heartbeat of an integration. Nil for match: it is pinged.
func Heartbeat(
	namespace, name, integration string, every time.Duration, match *v1alpha1.HeartbeatMatch,
) *v1alpha1.Heartbeat {
	return &v1alpha1.Heartbeat{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.HeartbeatSpec{IntegrationName: integration, Every: &metav1.Duration{Duration: every}, Match: match},
	}
}

// AnyRequest is the match of a Heartbeat for which every request is a signal.
func AnyRequest() *v1alpha1.HeartbeatMatch { return &v1alpha1.HeartbeatMatch{AnyRequest: true} }
