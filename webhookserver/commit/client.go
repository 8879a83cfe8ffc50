package commit

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/packing"
)

// Client writes AlertEvents. It implements Store.
type Client struct {
	rest *rest.RESTClient
}

// NewClient makes a client from the manager's configuration. It shares no connection with the manager's other clients, so that
// neither waits behind the other, and speaks HTTP/1.1, a connection for each write under way: one that has died is dropped with
// the attempt that found out. The Committer limits the writes under way and retries, so there is no rate limit here.
func NewClient(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.ContentConfig = rest.ContentConfig{
		GroupVersion:         &v1alpha1.GroupVersion,
		NegotiatedSerializer: scheme.Codecs.WithoutConversion(), // for errors
		ContentType:          runtime.ContentTypeJSON,
	}
	config.QPS = -1
	config.RateLimiter = nil
	config.Timeout = 0 // each attempt has its own
	config.WarningHandler = rest.NoWarnings{}
	config.NextProtos = []string{"http/1.1"}
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making the ingest client: %w", err)
	}
	return &Client{rest: client}, nil
}

// Create implements Store. The answer's body is not needed, so it is asked for without the spec; and
// as the object is made of typed structs, the API server need not look for unknown fields.
func (c *Client) Create(ctx context.Context, event *v1alpha1.AlertEvent) error {
	body, err := json.Marshal(packed(event))
	if err != nil {
		return &notStoredError{fmt.Errorf("encoding the AlertEvent: %w", err)}
	}
	return c.rest.Post().
		Namespace(event.Namespace).
		Resource("alertevents").
		VersionedParams(&metav1.CreateOptions{FieldManager: v1alpha1.FieldManager, FieldValidation: metav1.FieldValidationIgnore},
			metav1.ParameterCodec).
		SetHeader("Content-Type", runtime.ContentTypeJSON).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json").
		MaxRetries(0).
		Timeout(timeoutOf(ctx)).
		Body(body).
		Do(ctx).
		Error()
}

// packed returns the event as it is written: several alerts are packed, which costs the API server a
// fraction. Alerts that it would refuse are sent unpacked, so that its error names the field at fault.
func packed(event *v1alpha1.AlertEvent) *v1alpha1.AlertEvent {
	if len(event.Spec.Alerts) < 2 {
		return event
	}
	small := *event
	if err := packing.Pack(&small.Spec); err != nil {
		return event
	}
	return &small
}

// Get implements Store. An AlertEvent that cannot be unpacked has no alerts.
func (c *Client) Get(ctx context.Context, namespace, name string) (*v1alpha1.AlertEvent, error) {
	event := &v1alpha1.AlertEvent{}
	body, err := c.rest.Get().
		Namespace(namespace).
		Resource("alertevents").
		Name(name).
		MaxRetries(0).
		Timeout(timeoutOf(ctx)).
		Do(ctx).
		Raw()
	if err == nil {
		err = json.Unmarshal(body, event)
	}
	_ = packing.Unpack(&event.Spec)
	return event, err
}

// Close drops the connections that are kept for the next write.
func (c *Client) Close() {
	if c.rest.Client != nil && c.rest.Client.Transport != nil {
		utilnet.CloseIdleConnectionsFor(c.rest.Client.Transport)
	}
}

// timeoutOf returns the time until ctx ends. The API server learns it, and stops working at the same time.
func timeoutOf(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return attemptTimeout
	}
	return max(time.Until(deadline), time.Millisecond)
}
