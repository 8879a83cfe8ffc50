// Package eventclient has the client by which a replica stores AlertEvents.
package eventclient

import (
	"fmt"
	"net"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const dialTimeout = 2 * time.Second

// New makes a client from the manager's configuration. It shares no connection with the manager's other clients, so that neither
// waits behind the other, and speaks HTTP/1.1, a connection for each request under way: one that has died is dropped with the
// request that found out. It has no rate limit, and no timeout: each request has its own.
func New(config *rest.Config) (*rest.RESTClient, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.ContentConfig = rest.ContentConfig{
		GroupVersion:         &v1alpha1.GroupVersion,
		NegotiatedSerializer: scheme.Codecs.WithoutConversion(), // for errors
		ContentType:          runtime.ContentTypeJSON,
	}
	config.QPS = -1
	config.RateLimiter = nil
	config.Timeout = 0
	config.WarningHandler = rest.NoWarnings{}
	config.NextProtos = []string{"http/1.1"}
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of AlertEvents: %w", err)
	}
	return client, nil
}

// Create returns the request that creates an AlertEvent, which is given encoded. The answer's body is not needed, so it is asked
// for without the spec; and as the object is made of typed structs, the API server need not look for unknown fields.
func Create(client *rest.RESTClient, namespace string, event []byte) *rest.Request {
	return client.Post().
		Namespace(namespace).
		Resource("alertevents").
		VersionedParams(&metav1.CreateOptions{FieldManager: v1alpha1.FieldManager, FieldValidation: metav1.FieldValidationIgnore},
			metav1.ParameterCodec).
		SetHeader("Content-Type", runtime.ContentTypeJSON).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json").
		MaxRetries(0).
		Body(event)
}
