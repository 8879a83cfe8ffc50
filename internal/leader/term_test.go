package leader

import (
	"context"
	"errors"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// oneInformer is a cache with an informer that knows its event handlers.
type oneInformer struct {
	cache.Cache
	cache.Informer
	handlers      []*registration
	failure, stay error // of adding a handler, and of removing one
}

// registration is that of an event handler.
type registration struct {
	toolscache.ResourceEventHandlerRegistration
}

var errNoInformer = errors.New("no informer")

// GetInformer implements cache.Informers.
func (c *oneInformer) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	if _, ok := object.(*v1alpha1.Incident); !ok {
		return nil, errNoInformer
	}
	return c, nil
}

// AddEventHandlerWithOptions implements cache.Informer.
func (c *oneInformer) AddEventHandlerWithOptions(
	toolscache.ResourceEventHandler, toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	if c.failure != nil {
		return nil, c.failure
	}
	added := &registration{}
	c.handlers = append(c.handlers, added)
	return added, nil
}

// RemoveEventHandler implements cache.Informer.
func (c *oneInformer) RemoveEventHandler(handler toolscache.ResourceEventHandlerRegistration) error {
	c.handlers = slices.DeleteFunc(c.handlers, func(h *registration) bool { return h == handler })
	return c.stay
}

// IsStopped implements cache.Informer.
func (*oneInformer) IsStopped() bool { return false }

func TestATermRemovesItsEventHandlers(t *testing.T) {
	g, objects := NewWithT(t), &oneInformer{}
	term := NewTerm(ctrl.Manager(nil), objects)
	_, err := term.GetCache().GetInformer(t.Context(), &v1alpha1.AlertEvent{})
	g.Expect(err).To(MatchError(errNoInformer))
	informer, err := term.GetCache().GetInformer(t.Context(), &v1alpha1.Incident{})
	g.Expect(err).NotTo(HaveOccurred())
	handler := toolscache.ResourceEventHandlerFuncs{}
	registered, err := informer.AddEventHandler(handler)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(registered).To(Equal(toolscache.ResourceEventHandlerRegistration(objects.handlers[0])))
	_, err = informer.AddEventHandlerWithOptions(handler, toolscache.HandlerOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	objects.failure = errNoInformer
	_, err = informer.AddEventHandler(handler)
	g.Expect(err).To(MatchError(errNoInformer))
	objects.failure = nil
	another, err := objects.AddEventHandlerWithOptions(handler, toolscache.HandlerOptions{}) // of the replica
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects.handlers).To(HaveLen(3))

	g.Expect(term.Run(t.Context())).To(Succeed(), "without runnables, it has ended")
	g.Expect(objects.handlers).To(ConsistOf(another))
	_, err = informer.AddEventHandler(handler)
	g.Expect(err).To(MatchError(errClosed), "a controller that starts late")
	g.Expect(objects.handlers).To(HaveLen(1))
}

func TestATermEndsWithTheFirstRunnableThatFails(t *testing.T) {
	failure := errors.New("cannot fold")
	for sentence, test := range map[string]struct {
		fails bool  // a runnable, before the term ends
		stay  error // of removing event handlers
		want  []error
	}{
		"a runnable fails":                      {true, nil, []error{failure}},
		"the term ends":                         {false, nil, nil},
		"an event handler stays":                {false, errNoInformer, []error{errNoInformer}},
		"a runnable fails, and a handler stays": {true, errNoInformer, []error{failure, errNoInformer}},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, objects := NewWithT(t), &oneInformer{stay: test.stay}
			term := NewTerm(ctrl.Manager(nil), objects)
			informer, err := term.GetCache().GetInformer(t.Context(), &v1alpha1.Incident{})
			g.Expect(err).NotTo(HaveOccurred())
			_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{})
			g.Expect(err).NotTo(HaveOccurred())
			ctx, end := context.WithCancel(t.Context())
			defer end()
			ended := false
			g.Expect(term.Add(manager.RunnableFunc(func(ctx context.Context) error {
				<-ctx.Done()
				ended = true
				return ctx.Err()
			}))).To(Succeed())
			g.Expect(term.Add(manager.RunnableFunc(func(ctx context.Context) error {
				if test.fails {
					return failure
				}
				end()
				<-ctx.Done()
				return failure // it was still starting
			}))).To(Succeed())
			err = term.Run(ctx)
			g.Expect(ended).To(BeTrue(), "all have ended")
			g.Expect(objects.handlers).To(BeEmpty())
			if test.want == nil {
				g.Expect(err).NotTo(HaveOccurred())
			}
			for _, want := range test.want {
				g.Expect(err).To(MatchError(want))
			}
			g.Expect(errors.Is(err, failure)).To(Equal(test.fails))
		})
	}
}
