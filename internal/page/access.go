package page

import (
	"context"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// access decides who may use the page, and bounds what the requests of each user take.
type access interface {
	// identify returns the user who sent a request, or why the page rejects it.
	identify(r *http.Request) (*caller, error)
	// admit counts a request to the API server until release is called. It returns an error if there are too many.
	admit(c *caller) (release func(), err error)
	// join returns the watch of a caller, until its leave is called.
	join(ctx context.Context, c *caller) (*watch, error)
	// follow lets watches run until ctx ends, and returns a function that waits for their end.
	follow(ctx context.Context) (wait func())
}

// caller is who sent a request. Its client bears nothing but its credentials.
type caller struct {
	client    client.WithWatch
	namespace string // of the Incidents that the page lists; empty for all
	key       watchKey
	user      string // see users.nameOf; empty if there is one user
}
