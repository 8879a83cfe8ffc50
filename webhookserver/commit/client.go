package commit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/eventclient"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// Client writes AlertEvents. It implements Store.
type Client struct {
	rest *rest.RESTClient
}

// NewClient makes a client from the manager's configuration. The Committer limits the writes under way, and retries.
func NewClient(config *rest.Config) (*Client, error) {
	client, err := eventclient.New(config)
	if err != nil {
		return nil, err
	}
	return &Client{rest: client}, nil
}

// Create implements Store.
func (c *Client) Create(ctx context.Context, event *v1alpha1.AlertEvent) error {
	body, err := json.Marshal(event)
	if err != nil {
		return &notStoredError{fmt.Errorf("encoding the AlertEvent: %w", err)}
	}
	return eventclient.Create(c.rest, event.Namespace, body).Timeout(timeoutOf(ctx)).Do(ctx).Error()
}

// Get implements Store. An AlertEvent whose text cannot be decoded has no alerts.
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
	_ = queue.Decode(event)
	return event, err
}

// Close drops the connections that are kept for the next write.
func (c *Client) Close() {
	utilnet.CloseIdleConnectionsFor(c.rest.Client.Transport)
}

// timeoutOf returns the time until ctx ends. The API server learns it, and stops working at the same time.
func timeoutOf(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return attemptTimeout
	}
	return max(time.Until(deadline), time.Millisecond)
}
