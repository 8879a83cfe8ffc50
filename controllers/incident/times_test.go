package incident

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
)

// Fire, resolve, and fire again with the same startTime after a while.
// ordered are Presets of which this one delivers in order.
type ordered string

func (o ordered) LateFiringWindow(preset string) (window time.Duration, ok bool) {
	return 0, preset == string(o)
}

func TestAnOutageThatGoesOnReopensItsIncident(t *testing.T) {
	spec := func(window time.Duration) func(*v1alpha1.WebhookIntegrationSpec) {
		return func(spec *v1alpha1.WebhookIntegrationSpec) {
			spec.LateFiringWindow = &metav1.Duration{Duration: window}
		}
	}
	preset := func(spec *v1alpha1.WebhookIntegrationSpec) { spec.Preset = "flux" }
	none := func(*v1alpha1.WebhookIntegrationSpec) {}
	both := func(s *v1alpha1.WebhookIntegrationSpec) {
		preset(s)
		spec(time.Minute)(s)
	}
	for sentence, c := range map[string]struct {
		integration func(*v1alpha1.WebhookIntegrationSpec) // nil: there is none
		after       time.Duration
		want        v1alpha1.IncidentState
	}{
		"four hours later: reopens":                                    {none, 4 * time.Hour, v1alpha1.IncidentOpen},
		"four hours later, the integration gone: reopens":              {nil, 4 * time.Hour, v1alpha1.IncidentOpen},
		"29 seconds later: stays resolved":                             {none, 29 * time.Second, v1alpha1.IncidentResolved},
		"29 seconds later, the integration gone: stays resolved":       {nil, 29 * time.Second, v1alpha1.IncidentResolved},
		"a second later, the spec says 0s: reopens":                    {spec(0), time.Second, v1alpha1.IncidentOpen},
		"two hours later, the spec says 3h: stays resolved":            {spec(3 * time.Hour), 2 * time.Hour, v1alpha1.IncidentResolved},
		"a second later, the preset says 0s: reopens":                  {preset, time.Second, v1alpha1.IncidentOpen},
		"a second later, the preset says 0s, the spec 1m: it does not": {both, time.Second, v1alpha1.IncidentResolved},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			s.incidents.Presets = ordered("flux")
			if c.integration != nil {
				s.Integrate(c.integration)
			}
			alert := s.Alert(v1alpha1.AlertFiring, "disk")
			alert.StartTime = new(v1alpha1.NewTimestamp(s.Clock.Now()))
			s.Post(alert)
			s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
			s.fold("disk")
			s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved))

			s.Clock.SetTime(s.Clock.Now().Add(c.after))
			again := s.Alert(v1alpha1.AlertFiring, "disk")
			again.StartTime = alert.StartTime
			s.Post(again)
			s.fold("disk")
			status := s.Incident("disk").Status
			s.Expect(status.State).To(Equal(c.want))
			s.Expect(status.AlertCount).To(BeEquivalentTo(3))
			if c.want == v1alpha1.IncidentOpen {
				s.Expect(status.Episode.Number).To(BeEquivalentTo(2))
			}
		})
	}
}

func TestARepeatedResolveOfBeforeDoesNotEndTheEpisode(t *testing.T) {
	s := newSite(t)
	began := s.Clock.Now()
	told := func(status v1alpha1.AlertStatus, startTime, endTime time.Duration) {
		alert := s.Alert(status, "disk")
		alert.StartTime = new(v1alpha1.NewTimestamp(began.Add(startTime)))
		if endTime > 0 {
			alert.EndTime = new(v1alpha1.NewTimestamp(began.Add(endTime)))
		}
		s.Clock.SetTime(s.Clock.Now().Add(10 * time.Minute))
		s.Post(alert)
		s.fold("disk")
	}
	told(v1alpha1.AlertFiring, 0, 0)
	told(v1alpha1.AlertResolved, 0, 12*time.Minute)
	told(v1alpha1.AlertFiring, 25*time.Minute, 0)
	told(v1alpha1.AlertResolved, 0, 12*time.Minute)
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentOpen))
	told(v1alpha1.AlertResolved, 25*time.Minute, 45*time.Minute)
	status := s.Incident("disk").Status
	s.Expect(status.State).To(Equal(v1alpha1.IncidentResolved))
	s.Expect([]int64{status.AlertCount, status.Episode.Number}).To(Equal([]int64{5, 2}))
}

// Whatever times somebody writes into an AlertEvent, it is folded and released.
func TestHostileTimesAreFolded(t *testing.T) {
	times := []string{
		"0100-01-01T00:00:00Z", "0100-01-01T00:00:00+23:59", "1969-12-31T23:59:59.999999999Z",
		"9998-12-31T23:59:59-23:59", "9999-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-23:59",
	}
	for i, text := range times {
		for _, field := range []string{"receivedTime", "startTime", "endTime"} {
			for _, status := range []v1alpha1.AlertStatus{
				v1alpha1.AlertFiring, v1alpha1.AlertResolved, v1alpha1.AlertAcknowledged, v1alpha1.AlertUnacknowledged,
			} {
				t.Run(fmt.Sprintf("%s of %s in an alert that is %s", field, text, status), func(t *testing.T) {
					s := newSite(t)
					key := fmt.Sprint("disk-", i)
					s.Integrate(nil)
					if status != v1alpha1.AlertFiring {
						s.PostFiring(key)
						s.fold(key)
						s.release()
					}
					var when v1alpha1.Timestamp
					s.Expect(when.UnmarshalJSON([]byte(`"` + text + `"`))).To(Succeed())
					alert := s.Alert(status, key)
					event := &v1alpha1.AlertEvent{Spec: v1alpha1.AlertEventSpec{IntegrationName: testsite.Integration}}
					event.Namespace, event.GenerateName = s.Namespace, "by-hand-"
					switch field {
					case "receivedTime":
						event.Spec.ReceivedTime = when
					case "startTime":
						alert.StartTime = &when
					case "endTime":
						alert.EndTime = &when
					}
					event.Spec.Alerts = testenv.Text(alert)
					s.Expect(s.Live.Create(s.Ctx, event)).To(Succeed())
					s.Clock.SetTime(s.Clock.Now().Add(writeInterval))
					s.fold(key)
					s.release()
					s.Expect(s.EventNames()).To(BeEmpty())
					got := s.Incident(key).Status
					s.Expect(got.State).NotTo(BeEmpty())
					s.Expect(got.LastAlertTime.Time).To(BeTemporally("~", time.Now(), 2*fold.MaxClockDifference))

					// A resolve without times ends it in any case, and a firing begins anew.
					s.Clock.SetTime(s.Clock.Now().Add(time.Hour))
					s.Post(s.Alert(v1alpha1.AlertResolved, key))
					s.fold(key)
					s.Expect(s.Incident(key).Status.State).To(Equal(v1alpha1.IncidentResolved))
					s.Clock.SetTime(s.Clock.Now().Add(time.Hour))
					s.PostFiring(key)
					s.fold(key)
					s.Expect(s.Incident(key).Status.State).To(Equal(v1alpha1.IncidentOpen))
				})
			}
		}
	}
}
