package live

import (
	"context"
	"fmt"
	"iter"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Integrations lists the WebhookIntegrations of a namespace, empty for all. An error ends the sequence.
func Integrations(ctx context.Context, c client.Reader, namespace string) iter.Seq2[*v1alpha1.WebhookIntegration, error] {
	return func(yield func(*v1alpha1.WebhookIntegration, error) bool) {
		for page, err := range Pages(ctx, c, &v1alpha1.WebhookIntegrationList{}, client.InNamespace(namespace),
			client.Limit(PageSize)) {
			if err != nil {
				yield(nil, fmt.Errorf("listing integrations: %w", err))
				return
			}
			for i := range page.Items {
				if !yield(&page.Items[i], nil) {
					return
				}
			}
		}
	}
}

// Feature has objects that belong to integrations, and whose states users see.
type Feature interface {
	// Kind is that of the objects, such as Heartbeat.
	Kind() string

	// List lists the objects of a namespace, empty for all: those first about which something is to be done.
	List(ctx context.Context, c client.Reader, namespace string) ([]Part, error)

	// Tally counts parts by their states, such as "1 missed, 3 heard"; empty if there are none.
	Tally(parts []Part) string
}

// Part is an object of a feature, which is part of an integration.
type Part struct {
	Namespace   string              `json:"namespace"`
	Integration string              `json:"integration"`
	Name        string              `json:"name"`
	State       string              `json:"state"`          // in a word
	Last        *v1alpha1.Timestamp `json:"last,omitempty"` // its last signal; nil before the first
	Due         *v1alpha1.Timestamp `json:"due,omitempty"`  // when the next one is due at the latest; nil if none is expected
	Trouble     Trouble             `json:"-"`
}

// Trouble is how much is wrong with a part.
type Trouble int

// The troubles.
const (
	NoTrouble Trouble = iota
	Unsettled
	Broken
)
