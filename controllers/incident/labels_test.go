package incident

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// newLabelledSite is a site whose integration has the labels team and pod of alerts become labels of Incidents.
func newLabelledSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.ObjectLabels, spec.LateFiringWindow = []string{"team", "pod"}, &metav1.Duration{}
	})
	return s
}

// alert folds an alert with labels a minute later.
func (s *site) alert(status v1alpha1.AlertStatus, key string, labels map[string]string) {
	s.post(status, key, labels)
	s.fold(key)
}

func (s *site) post(status v1alpha1.AlertStatus, key string, labels map[string]string) {
	s.pass(time.Minute)
	alert := s.Alert(status, key)
	alert.Labels = labels
	s.Post(alert)
}

// selected returns the dedup keys of the Incidents that kubectl get incidents -l lists.
func (s *site) selected(labels client.MatchingLabels) []string {
	var list v1alpha1.IncidentList
	s.Expect(s.Live.List(s.Ctx, &list, client.InNamespace(s.Namespace), labels)).To(Succeed())
	keys := []string{}
	for i := range list.Items {
		keys = append(keys, list.Items[i].Spec.DedupKey)
	}
	return keys
}

func TestIncidentsAreSelectedByLabelsOfTheirAlerts(t *testing.T) {
	s := newLabelledSite(t)
	team := func(name string) client.MatchingLabels { return client.MatchingLabels{"alert.tocsin.dev/team": name} }
	s.alert(v1alpha1.AlertFiring, "disk", map[string]string{"team": "Web & Shop", "site": "north"})
	s.alert(v1alpha1.AlertFiring, "cpu", map[string]string{"team": "web", "pod": "東京"})
	s.Expect(s.selected(team("web"))).To(Equal([]string{"cpu"}))
	s.Expect(s.selected(team("Web___Shop"))).To(Equal([]string{"disk"}))
	s.Expect(s.Incident("cpu").Labels).To(HaveLen(1))
	s.Expect(s.faults.statusWrites).To(Equal(2))
	s.Expect(s.faults.patches).To(BeZero(), "they are part of the creation")

	disk := s.Incident("disk")
	disk.Labels["example.com/owner"], disk.Labels["alert.tocsin.dev/site"] = "me", "of-an-earlier-setting"
	s.Expect(s.Live.Update(s.Ctx, disk)).To(Succeed())
	s.alert(v1alpha1.AlertFiring, "disk", map[string]string{"team": "db"})
	s.alert(v1alpha1.AlertResolved, "disk", map[string]string{"team": "db"})
	s.Expect(s.selected(team("db"))).To(BeEmpty())
	s.Expect(s.faults.patches).To(BeZero(), "repeats and ends change none")

	s.alert(v1alpha1.AlertFiring, "disk", map[string]string{"pod": "p-1"})
	s.Expect(s.faults.patches).To(Equal(1))
	s.Expect(s.Incident("disk").Labels).To(Equal(map[string]string{"example.com/owner": "me", "alert.tocsin.dev/pod": "p-1"}))
	s.Expect(s.Incident("disk").Status.Episode.Number).To(BeEquivalentTo(2))
	s.alert(v1alpha1.AlertResolved, "disk", nil)
	s.alert(v1alpha1.AlertFiring, "disk", map[string]string{"pod": "p-1"})
	s.Expect(s.Incident("disk").Status.Episode.Number).To(BeEquivalentTo(3))
	s.Expect(s.faults.patches).To(Equal(1), "they are the same")

	s.post(v1alpha1.AlertResolved, "disk", nil) // and the next episode begins in the same fold
	s.alert(v1alpha1.AlertFiring, "disk", map[string]string{"team": "db"})
	s.Expect(s.Incident("disk").Status.Episode.Number).To(BeEquivalentTo(4))
	s.Expect(s.Incident("disk").Labels).To(Equal(map[string]string{"example.com/owner": "me", "alert.tocsin.dev/team": "db"}))
	s.Expect(s.Incident("disk").Status.AlertCount).To(BeEquivalentTo(8))
}

func TestTheLabelsOfADeletedIntegrationStay(t *testing.T) {
	s := newLabelledSite(t)
	s.alert(v1alpha1.AlertFiring, "disk", map[string]string{"team": "db"})
	s.alert(v1alpha1.AlertResolved, "disk", nil)
	integration := v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.IntegrationKey().Name}}
	s.Expect(s.Live.Delete(s.Ctx, &integration)).To(Succeed())
	s.alert(v1alpha1.AlertFiring, "disk", map[string]string{"team": "web"})
	s.Expect(s.Incident("disk").Labels).To(Equal(map[string]string{"alert.tocsin.dev/team": "db"}))
}

func TestAnIncidentThatCannotBeLabelledIsFoldedAllTheSame(t *testing.T) {
	for sentence, failure := range map[string]error{
		"without the permission": forbidden(`User "tocsin" cannot patch resource "incidents"`),
		"against a policy":       forbidden("ValidatingAdmissionPolicy 'x' denied request: no"),
		"while it times out":     errors.New("context deadline exceeded"),
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newLabelledSite(t)
			s.alert(v1alpha1.AlertFiring, "disk", map[string]string{"team": "a"})
			s.alert(v1alpha1.AlertResolved, "disk", nil)
			s.faults.beforePatch = func() error { return failure }
			s.alert(v1alpha1.AlertFiring, "disk", map[string]string{"team": "b"})
			s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentOpen))
			s.Expect(s.Incident("disk").Status.AlertCount).To(BeEquivalentTo(3))
			s.Expect(s.Incident("disk").Labels).To(HaveKeyWithValue("alert.tocsin.dev/team", "a"))

			s.faults.beforePatch = nil
			s.alert(v1alpha1.AlertResolved, "disk", nil)
			s.alert(v1alpha1.AlertFiring, "disk", map[string]string{"team": "b"})
			s.Expect(s.Incident("disk").Labels).To(HaveKeyWithValue("alert.tocsin.dev/team", "b"), "the next episode has its own")
		})
	}
	t.Run("if its creation is rejected with labels", func(t *testing.T) {
		s := newLabelledSite(t)
		s.faults.refuseCreate = func(object client.Object) error {
			if len(object.GetLabels()) > 0 {
				return forbidden("ValidatingAdmissionPolicy 'x' denied request: no")
			}
			return nil
		}
		s.faults.beforePatch = func() error { return forbidden("ValidatingAdmissionPolicy 'x' denied request: no") }
		s.alert(v1alpha1.AlertFiring, "disk", map[string]string{"team": "a"})
		s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentOpen))
		s.Expect(s.Incident("disk").Labels).To(BeEmpty())
	})
}

// A crash, a lost answer and another writer between the labels and the status neither lose an alert nor count one twice.
func TestLabelsAndStatusAreTwoWrites(t *testing.T) {
	for sentence, between := range map[string]func(*site) error{
		"the process is killed":            func(*site) error { return errCrash },
		"the Incident changes":             func(s *site) error { return s.edit("disk") },
		"the answer of the labels is lost": nil,
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newLabelledSite(t)
			s.alert(v1alpha1.AlertFiring, "disk", map[string]string{"team": "a"})
			s.alert(v1alpha1.AlertResolved, "disk", nil)
			s.post(v1alpha1.AlertFiring, "disk", map[string]string{"team": "b"})
			once := func(hook func(*site) error) func() error {
				return func() error {
					s.faults.beforeStatus, s.faults.afterPatch = nil, nil
					return hook(s)
				}
			}
			if between != nil {
				s.faults.beforeStatus = once(between)
			} else {
				s.faults.afterPatch = once(func(*site) error { return errors.New("connection reset") })
			}
			if _, err := s.reconcile("disk"); errors.Is(err, errCrash) {
				s.folder = s.newFolder()
			}
			s.Expect(s.Incident("disk").Labels).To(HaveKeyWithValue("alert.tocsin.dev/team", "b"))
			s.fold("disk")
			s.Expect(s.Incident("disk").Status.Episode.Number).To(BeEquivalentTo(2))
			s.Expect(s.Incident("disk").Status.AlertCount).To(BeEquivalentTo(3))
			s.Expect(s.Incident("disk").Labels).To(HaveKeyWithValue("alert.tocsin.dev/team", "b"))
		})
	}
}

// Another leader folds and releases between the read and the labels. A patch that did not demand the Incident that was read would
// return its newest resourceVersion, over which the status of this leader would be written.
func TestLabelsAreSetOnlyOnTheIncidentThatWasRead(t *testing.T) {
	s := newLabelledSite(t)
	s.alert(v1alpha1.AlertFiring, "disk", map[string]string{"team": "a"})
	s.alert(v1alpha1.AlertResolved, "disk", nil)
	s.post(v1alpha1.AlertFiring, "disk", map[string]string{"team": "b"})
	first := s.folder
	first.faults.beforePatch = func() error {
		first.faults.beforePatch = nil
		s.folder = s.newFolder()
		s.alert(v1alpha1.AlertFiring, "disk", map[string]string{"team": "c"})
		s.release()
		s.folder = first
		return nil
	}
	s.fold("disk")
	s.Expect(s.Incident("disk").Status.AlertCount).To(BeEquivalentTo(4))
	s.Expect(s.Incident("disk").Status.Episode.Number).To(BeEquivalentTo(2))
	s.Expect(s.Incident("disk").Labels).To(HaveKeyWithValue("alert.tocsin.dev/team", "b"))
}

// edit labels an Incident, as a user does.
func (s *site) edit(key string) error {
	incident := s.Incident(key)
	incident.Labels["example.com/owner"] = "me"
	return s.Live.Update(s.Ctx, incident)
}
