package history

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Unreachable is a cluster that cannot be read because of an error, such as a missing kubeconfig.
type Unreachable struct{ Err error }

// Get implements client.Reader.
func (u Unreachable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return u.Err
}

// List implements client.Reader.
func (u Unreachable) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return u.Err
}
