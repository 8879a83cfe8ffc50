package commit

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// instantStore stores nothing.
type instantStore struct{ Store }

func (instantStore) Create(context.Context, *v1alpha1.AlertEvent) error { return nil }

// BenchmarkQueues measures what a submission costs besides its write, with 64 senders to so many integrations of 10 namespaces.
func BenchmarkQueues(b *testing.B) {
	for _, integrations := range []int{1, 10, 1000} {
		b.Run(fmt.Sprint(integrations), func(b *testing.B) {
			c := New(instantStore{}, 8, nil)
			var sender atomic.Int64
			b.SetParallelism(32) // times GOMAXPROCS
			b.RunParallel(func(pb *testing.PB) {
				alerts := make([]v1alpha1.Alert, 1)
				for pb.Next() {
					n := int(sender.Add(1)) % integrations
					_, err := c.Commit(context.Background(), Submission{
						Integration: types.NamespacedName{Namespace: fmt.Sprint(n % 10), Name: fmt.Sprint(n)}, Alerts: alerts,
					})
					if err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
