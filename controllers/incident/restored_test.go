package incident

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// TestTheCacheKnowsRestoredAlertEvents: client-go transforms the objects of an initial list once or twice, depending on how it
// gets the list, and those that a watch shows once.
func TestTheCacheKnowsRestoredAlertEvents(t *testing.T) {
	for sentence, byWatch := range map[string]bool{
		"the initial list comes by a watch": true,
		"the initial list comes by a list":  false,
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, byWatch)
			restored := map[string]bool{} // by name
			s.postOld(restored)
			ctx, cancel := context.WithCancel(s.Ctx)
			defer cancel()
			objects := s.startCache(ctx, t)
			s.postOld(restored)
			s.Expect(restored).To(HaveLen(6))
			for name, want := range restored {
				var cached v1alpha1.AlertEvent
				s.Eventually(func() error {
					return objects.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, &cached)
				}, time.Minute, 50*time.Millisecond).Should(Succeed())
				s.Expect(queue.IsRestored(&cached)).To(Equal(want), name)
				removed := len("key" + "value" + v1alpha1.ExcludeFromBackupLabel + "true")
				s.Expect(s.incidents.Memory.Cached.StoredSize(&cached)).To(BeEquivalentTo(queue.EncodedSize(cached.Alerts) + removed))
			}
		})
	}
}

// postOld creates AlertEvents that say that they were received an hour ago, as Velero, as another backup tool and as the operator
// itself, whose clock may be wrong. It notes under their names whether they are restored.
func (s *site) postOld(restored map[string]bool) {
	for manager, labels := range map[string]map[string]string{
		"velero-server":       {v1alpha1.RestoreLabel: "monday"},
		"another-backup-tool": nil,
		v1alpha1.FieldManager: nil,
	} {
		written := map[string]string{v1alpha1.ExcludeFromBackupLabel: "true"}
		maps.Copy(written, labels)
		event := &v1alpha1.AlertEvent{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.Namespace, Name: uuid.Must(uuid.NewV7()).String(), Labels: written, Annotations: map[string]string{"key": "value"},
			},
			Spec: v1alpha1.AlertEventSpec{
				IntegrationName: testsite.Integration, ReceivedTime: v1alpha1.NewTimestamp(time.Now().Add(-time.Hour)),
				Summary: "as Tocsin writes it", Alerts: testenv.Text(v1alpha1.Alert{DedupKey: "disk", Status: v1alpha1.AlertFiring}),
			},
		}
		s.Expect(s.Live.Create(s.Ctx, event, client.FieldOwner(manager))).To(Succeed())
		restored[event.Name] = manager != v1alpha1.FieldManager
	}
}

// startCache starts a cache of the site's namespace, as the manager has it, and waits until it has read the AlertEvents.
func (s *site) startCache(ctx context.Context, t *testing.T) cache.Cache {
	t.Helper()
	objects, err := (&clustercache.Informers{Log: logr.Discard()}).NewCache(s.Config, cache.Options{
		Scheme: testenv.Scheme(), Mapper: s.Live.RESTMapper(), DefaultNamespaces: map[string]cache.Config{s.Namespace: {}},
		ByObject: map[client.Object]cache.ByObject{&v1alpha1.AlertEvent{}: {Transform: s.incidents.Memory.Cached.Condense}},
	})
	s.Expect(err).NotTo(HaveOccurred())
	_, err = objects.GetInformer(ctx, &v1alpha1.AlertEvent{}, cache.BlockUntilSynced(false))
	s.Expect(err).NotTo(HaveOccurred())
	go func() { _ = objects.Start(ctx) }()
	s.Expect(objects.WaitForCacheSync(ctx)).To(BeTrue())
	return objects
}

// A backup has AlertEvents that stay for their idempotency keys, with their marks.
func TestARestoredAlertEventIsDiscardedWhateverItsMarkSays(t *testing.T) {
	for _, names := range []string{"*", "another"} {
		s := newSite(t)
		event := &v1alpha1.AlertEvent{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.Namespace, Name: v1alpha1.KeyedEventName(testsite.Integration, "key"),
				Labels:      map[string]string{v1alpha1.RestoreLabel: "monday"},
				Annotations: map[string]string{v1alpha1.SettledAnnotation: "20/" + names},
			},
			Spec: v1alpha1.AlertEventSpec{
				IntegrationName: testsite.Integration, ReceivedTime: v1alpha1.NewTimestamp(time.Now().Add(-time.Hour)),
				Summary: "as Tocsin writes it", Alerts: testenv.Text(v1alpha1.Alert{DedupKey: "disk", Status: v1alpha1.AlertFiring}),
			},
		}
		s.Expect(s.Live.Create(s.Ctx, event, client.FieldOwner("velero-server"))).To(Succeed())
		s.Expect(queue.Decode(event)).To(Succeed())
		s.incidents.releases.NoteMark(s.Ctx, event)
		s.fold("disk")
		s.release()
		s.Expect(s.EventNames()).To(BeEmpty(), names)
		s.Expect(s.IncidentNames()).To(BeEmpty())
	}
}
