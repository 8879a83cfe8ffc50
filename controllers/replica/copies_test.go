package replica

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

func namedEvent(name string, uid int) *v1alpha1.AlertEvent {
	return &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID(fmt.Sprint(uid)), CreationTimestamp: metav1.NewTime(testEpoch),
		},
		Alerts: []v1alpha1.Alert{{IncidentName: "incident"}},
	}
}

// hangingNamespace is an API server where an admission webhook of one namespace hangs.
type hangingNamespace struct {
	client.Writer
	name    string
	deleted chan string
}

func (h *hangingNamespace) Delete(ctx context.Context, object client.Object, _ ...client.DeleteOption) error {
	if object.GetNamespace() == h.name {
		<-ctx.Done()
		return ctx.Err()
	}
	h.deleted <- object.GetNamespace()
	return nil
}

// managerStub is all that a controller needs of a manager that starts it.
type managerStub struct {
	ctrl.Manager
	added manager.Runnable
}

func (*managerStub) GetLogger() logr.Logger { return logr.Discard() }
func (*managerStub) GetControllerOptions() config.Controller {
	return config.Controller{SkipNameValidation: new(true)}
}
func (s *managerStub) Add(runnable manager.Runnable) error { s.added = runnable; return nil }

func TestSecondCopiesOfANamespaceThatHangsDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		m := queue.NewMemory(clock.RealClock{})
		live := &hangingNamespace{name: "hangs", deleted: make(chan string, 1)}
		process := &managerStub{}
		g.Expect(addCopyController(process, live, m)).To(Succeed())
		g.Expect(process.added.(manager.LeaderElectionRunnable).NeedLeaderElection()).To(BeFalse(), "followers have copies")
		storeTwice := func(namespace string, number int) {
			first := namedEvent(fmt.Sprintf("01a1fc76-5bd7-792d-a695-%012d", number), number)
			first.Namespace = namespace
			second := first.DeepCopy()
			second.UID += "-again"
			m.NoteShown(first, false)
			m.NoteDeleted(first)
			m.NoteShown(second, false)
		}
		for number := range 100 {
			storeTwice("hangs", number)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- process.added.Start(ctx) }()
		time.Sleep(time.Second)
		began := time.Now()
		storeTwice("answers", 100)
		g.Expect(<-live.deleted).To(Equal("answers"))
		g.Expect(time.Since(began)).To(BeNumerically("<", time.Second))
		cancel()
		g.Expect(<-ended).To(Succeed())
	})
}

func TestASecondCopyIsCountedOnceItIsDeleted(t *testing.T) {
	gone := apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("alertevents").GroupResource(), "event")
	for sentence, test := range map[string]struct {
		answer  error
		unknown bool // to the watch
		counted float64
	}{
		"it is deleted":                    {counted: 1},
		"it was deleted already":           {answer: gone},
		"the watch no longer shows a copy": {unknown: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			registry := prometheus.NewRegistry()
			RegisterMetrics(registry)
			replayed := alertsFoldedTotal.WithLabelValues(fold.ResultReplayed)
			before := testutil.ToFloat64(replayed)
			memory := queue.NewMemory(clock.RealClock{})
			event := namedEvent("event", 1)
			if !test.unknown {
				memory.NoteShown(event, false)
			}
			g.Expect(DeleteCopy(t.Context(), rejectedDeletions{answer: test.answer}, memory, queue.RefOf(event))).To(Succeed())
			g.Expect(testutil.ToFloat64(replayed) - before).To(Equal(test.counted))
			g.Expect(testutil.GatherAndCount(registry)).To(BeNumerically(">=", 2))
		})
	}
}
