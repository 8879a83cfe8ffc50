package maintenance

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
)

func TestMain(m *testing.M) { testsite.Main(m) }

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// site is one with a leader that writes the status of its windows.
type site struct {
	*testsite.Site
	*reconciler
	events *events.FakeRecorder
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Site: testsite.New(t), events: events.NewFakeRecorder(10)}
	s.Clock.SetTime(noon)
	s.reconciler = &reconciler{cache: s.Live, live: s.Live, clock: testsite.APIClock{PassiveClock: s.Clock}, recorder: s.events}
	return s
}

func (s *site) create(window v1alpha1.MaintenanceWindow) *v1alpha1.MaintenanceWindow {
	window.Namespace = s.Namespace
	s.Expect(s.Live.Create(s.Ctx, &window)).To(Succeed())
	return &window
}

// told returns what the status of a window says, and after how long the leader looks again.
func (s *site) told(name string) (told string, again time.Duration) {
	key := types.NamespacedName{Namespace: s.Namespace, Name: name}
	result, err := s.Reconcile(s.Ctx, ctrl.Request{NamespacedName: key})
	s.Expect(err).NotTo(HaveOccurred())
	window := &v1alpha1.MaintenanceWindow{}
	s.Expect(s.Live.Get(s.Ctx, key, window)).To(Succeed())
	s.Expect(window.Status.ObservedGeneration).To(Equal(window.Generation))
	valid := meta.FindStatusCondition(window.Status.Conditions, v1alpha1.ConditionWindowValid)
	open := meta.FindStatusCondition(window.Status.Conditions, v1alpha1.ConditionWindowOpen)
	times := "no time"
	if window.Status.StartTime != nil {
		times = window.Status.StartTime.UTC().Format(time.DateTime) + " to " + window.Status.EndTime.UTC().Format(time.DateTime)
	}
	return fmt.Sprintf("Valid %s %s; Open %s %s: %s %s; %s", valid.Status, valid.Reason, open.Status, open.Reason, open.Message,
		times, window.Status.Integrations), result.RequeueAfter
}

// version returns the version of a window.
func (s *site) version(name string) string {
	window := &v1alpha1.MaintenanceWindow{}
	s.Expect(s.Live.Get(s.Ctx, types.NamespacedName{Namespace: s.Namespace, Name: name}, window)).To(Succeed())
	return window.ResourceVersion
}

func TestTheStatusOfAWindowThatIsOpenOnce(t *testing.T) {
	s := newSite(t)
	s.create(testenv.Window("", "db", noon.Add(time.Hour), noon.Add(3*time.Hour)))
	told, again := s.told("db")
	s.Expect(told).To(Equal("Valid True Valid; Open False Scheduled: It opens at 2026-03-01T13:00:00Z. " +
		"2026-03-01 13:00:00 to 2026-03-01 15:00:00; all"))
	s.Expect(again).To(Equal(maxPause), "its timer may show less time than the API server's clock")
	before := s.version("db")

	s.Clock.SetTime(noon.Add(59 * time.Minute))
	_, again = s.told("db")
	s.Expect(again).To(Equal(time.Minute))
	s.Expect(s.version("db")).To(Equal(before), "what has not changed is not written")

	s.Clock.SetTime(noon.Add(time.Hour))
	told, again = s.told("db")
	s.Expect(told).To(Equal("Valid True Valid; Open True WindowOpen: It is open until 2026-03-01T15:00:00Z. " +
		"2026-03-01 13:00:00 to 2026-03-01 15:00:00; all"))
	s.Expect(again).To(Equal(maxPause))

	s.Clock.SetTime(noon.Add(3 * time.Hour))
	told, again = s.told("db")
	s.Expect(told).To(Equal("Valid True Valid; Open False Over: It does not open again. " +
		"2026-03-01 13:00:00 to 2026-03-01 15:00:00; all"))
	s.Expect(again).To(BeZero())
	s.Expect(s.events.Events).To(BeEmpty())
}

func TestTheStatusOfAWindowThatRecurs(t *testing.T) {
	s := newSite(t)
	window := v1alpha1.MaintenanceWindow{ObjectMeta: metav1.ObjectMeta{Name: "backup"}}
	window.Spec.Recurring = &v1alpha1.Recurrence{Cron: "0 14 * * *", Duration: &metav1.Duration{Duration: time.Hour}}
	s.create(window)
	told, _ := s.told("backup")
	s.Expect(told).To(ContainSubstring("Open False Scheduled: It opens at 2026-03-01T14:00:00Z. 2026-03-01 14:00:00 to 2026-03-01 15:00:00;"))
	s.Clock.SetTime(noon.Add(150 * time.Minute))
	told, _ = s.told("backup")
	s.Expect(told).To(ContainSubstring("Open True WindowOpen: It is open until 2026-03-01T15:00:00Z. 2026-03-01 14:00:00 to 2026-03-01 15:00:00;"))
	s.Clock.SetTime(noon.Add(180*time.Minute - soon/2))
	_, again := s.told("backup")
	s.Expect(again).To(Equal(soon))
	s.Clock.SetTime(noon.Add(3 * time.Hour))
	told, _ = s.told("backup")
	s.Expect(told).To(ContainSubstring("Open False Scheduled: It opens at 2026-03-02T14:00:00Z."))
}

// The schema cannot evaluate a schedule: one that is wrong, or that never opens, shows in the status and as an Event, once.
func TestTheStatusOfAnInvalidWindow(t *testing.T) {
	s := newSite(t)
	window := v1alpha1.MaintenanceWindow{ObjectMeta: metav1.ObjectMeta{Name: "nightly"}}
	window.Spec.Recurring = &v1alpha1.Recurrence{Cron: "0 0 30 2 *", Duration: &metav1.Duration{Duration: time.Hour}}
	created := s.create(window)
	const message = `It mutes nothing: cron expression "0 0 30 2 *" names no day that exists.`
	for range 2 {
		told, again := s.told("nightly")
		s.Expect(told).To(Equal("Valid False InvalidWindow; Open False InvalidWindow: " + message + " no time; "))
		s.Expect(again).To(BeZero())
	}
	s.Expect(s.events.Events).To(Receive(Equal("Warning InvalidWindow " + message)))
	s.Expect(s.events.Events).To(BeEmpty())

	s.Expect(s.Live.Get(s.Ctx, client.ObjectKeyFromObject(created), created)).To(Succeed())
	created.Spec.Recurring.Cron = "0 0 28 2 *"
	s.Expect(s.Live.Update(s.Ctx, created)).To(Succeed())
	told, _ := s.told("nightly")
	s.Expect(told).To(HavePrefix("Valid True Valid; Open False Scheduled"))
}

func TestTheStatusNamesTheIntegrations(t *testing.T) {
	s := newSite(t)
	window := testenv.Window("", "storage", noon, noon.Add(time.Hour))
	window.Spec.Integrations = &v1alpha1.IntegrationSelection{
		Selector: &v1alpha1.IntegrationSelector{MatchLabels: map[string]v1alpha1.IntegrationLabel{"team": "storage"}},
	}
	s.create(window)
	told, _ := s.told("storage")
	s.Expect(told).To(ContainSubstring("Open True WindowOpen: It is open until 2026-03-01T13:00:00Z. " +
		"No WebhookIntegration of the namespace is selected."))
	s.Expect(told).To(HaveSuffix("; none"))
	for n, names := range []string{"a", "a, b", "a, b, c", "a, b, c and 1 more"} {
		integration := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: string(rune('a' + n)), Labels: map[string]string{"team": "storage"},
		}}
		s.Expect(s.Live.Create(s.Ctx, integration)).To(Succeed())
		told, _ = s.told("storage")
		s.Expect(told).To(HaveSuffix("; " + names))
	}
}

func TestAWindowIsLookedAtAgainWhenItMaySelectOthers(t *testing.T) {
	s := newSite(t)
	s.create(testenv.Window("", "db", noon, noon.Add(time.Hour)))
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	integration := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "shop", ResourceVersion: "1"}}
	labeled := integration.DeepCopy()
	labeled.ResourceVersion, labeled.Labels = "2", map[string]string{"team": "storage"}
	reported := labeled.DeepCopy()
	reported.ResourceVersion, reported.Status.ObservedGeneration = "3", 1
	h := s.watchIntegrations()
	h.Create(s.Ctx, event.CreateEvent{Object: integration, IsInInitialList: true}, queue)
	h.Update(s.Ctx, event.UpdateEvent{ObjectOld: labeled, ObjectNew: reported}, queue)
	s.Expect(queue.Len()).To(BeZero(), "at the start, the windows come by themselves")
	for name, change := range map[string]func(){
		"comes":      func() { h.Create(s.Ctx, event.CreateEvent{Object: integration}, queue) },
		"is labeled": func() { h.Update(s.Ctx, event.UpdateEvent{ObjectOld: integration, ObjectNew: labeled}, queue) },
		"goes":       func() { h.Delete(s.Ctx, event.DeleteEvent{Object: labeled}, queue) },
	} {
		change()
		s.Expect(queue.Len()).To(Equal(1), name)
		request, _ := queue.Get()
		s.Expect(request.Name).To(Equal("db"))
		queue.Done(request)
	}
}
