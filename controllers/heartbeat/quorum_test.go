package heartbeat

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
)

// TestTheCacheIsBehind has another replica write right before the leader decides, which the leader's cache does not show.
func TestTheCacheIsBehind(t *testing.T) {
	for sentence, write := range map[string]func(s *site){
		"a signal was heard": func(s *site) { s.hear() },
		"an alert could not be stored": func(s *site) {
			integration := &v1alpha1.WebhookIntegration{}
			s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), integration)).To(Succeed())
			integration.Status.LastUnavailableTime = new(v1alpha1.NewTimestamp(s.health.now.Add(-time.Minute)))
			s.Expect(s.Live.Status().Update(s.Ctx, integration)).To(Succeed())
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			s.look(0)
			s.hear()
			beat, integration := s.heartbeat(), &v1alpha1.WebhookIntegration{}
			s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), integration)).To(Succeed())
			s.cache = interceptor.NewClient(s.Live, interceptor.Funcs{Get: func(
				ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption,
			) error {
				switch into := object.(type) {
				case *v1alpha1.Heartbeat:
					if key.Name == beat.Name {
						beat.DeepCopyInto(into)
						return nil
					}
				case *v1alpha1.WebhookIntegration:
					integration.DeepCopyInto(into)
					return nil
				}
				return c.Get(ctx, key, object, options...)
			}})
			s.pass(6 * time.Minute)
			write(s)
			_, err := s.Reconcile(s.Ctx, request(s.Namespace, beat.Name))
			s.Expect(err).NotTo(HaveOccurred())
			s.Expect(s.EventNames()).To(BeEmpty())
			s.Expect(s.status().MissedTime).To(BeNil())
		})
	}
}

// TestTheCacheHidesTheHeartbeatOfALink tells that the heartbeat is there, but that nobody looks at it.
func TestTheCacheHidesTheHeartbeatOfALink(t *testing.T) {
	s := newSite(t)
	empty := interceptor.NewClient(s.Live, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
		Get: func(
			ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption,
		) error {
			if _, ok := object.(*v1alpha1.Heartbeat); ok {
				return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("heartbeats").GroupResource(), key.Name)
			}
			return c.Get(ctx, key, object, options...)
		},
	})
	l := &links{&reconciler{cache: empty, live: s.Live, recorder: s.events}, time.Hour}
	integration := &v1alpha1.WebhookIntegration{}
	s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), integration)).To(Succeed())
	integration.Spec.Federate = true
	s.Expect(s.Live.Update(s.Ctx, integration)).To(Succeed())
	_, err := l.Reconcile(s.Ctx, request(s.Namespace, testsite.Integration))
	s.Expect(err).NotTo(HaveOccurred())
	l.patience = 0
	_, err = l.Reconcile(s.Ctx, request(s.Namespace, testsite.Integration))
	s.Expect(err).To(MatchError(ContainSubstring("too many Heartbeats")))
}
