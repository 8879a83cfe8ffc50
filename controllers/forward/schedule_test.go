package forward

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
)

// resolvedReader is an API server that takes a while for each Incident, and has all of them as Resolved.
type resolvedReader struct {
	client.Reader
	takes time.Duration
}

func (r resolvedReader) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	time.Sleep(r.takes)
	if incident, ok := object.(*v1alpha1.Incident); ok {
		resolved, opened := v1alpha1.NewTimestamp(time.Now()), v1alpha1.NewTimestamp(time.Now().Add(-time.Minute))
		incident.Namespace, incident.Name, incident.Spec.IntegrationName = key.Namespace, key.Name, integration
		incident.Status.State, incident.Status.ResolvedTime, incident.Status.OpenedTime = v1alpha1.IncidentResolved, &resolved, &opened
	}
	return nil
}

// storm has so many Incidents of other namespaces open and end at once.
func (r *rig) storm(name string, count int) {
	for i := range count {
		namespace := fmt.Sprint("storm-", i%4)
		r.term.incidents.replaceIntegration(types.NamespacedName{Namespace: namespace, Name: integration},
			&v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: integration}})
		incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint(name, i), ResourceVersion: "1"}}
		incident.Spec.IntegrationName, incident.Status.State = integration, v1alpha1.IncidentOpen
		r.term.incidentChanged(incident, false)
		ended := incident.DeepCopy()
		ended.ResourceVersion = "2"
		r.term.incidentGone(ended)
		r.poster.schedule.changed.add(client.ObjectKeyFromObject(ended), time.Time{})
	}
}

func TestOpenIncidentsAreToldWithinAThirdOfTheLease(t *testing.T) {
	const open, expiry = 1000, time.Minute
	for sentence, test := range map[string]struct {
		reader     client.Reader
		answerTime time.Duration // of Alertmanager
		ended      int           // Incidents of other namespaces, before
		keys       int           // that open and end each second
	}{
		"nothing else happens":                    {reader: resolvedReader{}},
		"very many others have ended":             {reader: resolvedReader{takes: 2 * time.Millisecond}, ended: 50_000},
		"others have ended, and reads are slow":   {reader: resolvedReader{takes: 900 * time.Millisecond}, ended: 20_000},
		"others have ended, and no read ends":     {reader: hangingReader{}, ended: 20_000},
		"many others open and end":                {reader: resolvedReader{takes: 2 * time.Millisecond}, keys: 250},
		"Alertmanager is slow":                    {reader: resolvedReader{}, answerTime: time.Second, ended: 20_000},
		"Alertmanager is slow, and no read ends":  {reader: hangingReader{}, answerTime: time.Second, ended: 20_000},
		"many open and end, and no read ends":     {reader: hangingReader{}, keys: 250},
		"many open and end, and answers are slow": {reader: resolvedReader{}, keys: 250, answerTime: 300 * time.Millisecond},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.target.Expiry = expiry
				r.term.incidents.api, r.am.takes = test.reader, test.answerTime
				r.lead()
				for i := range open {
					r.fold(v1alpha1.Alert{DedupKey: fmt.Sprint(i), Status: v1alpha1.AlertFiring})
				}
				r.storm("before", test.ended)
				r.wait(30 * time.Second) // until the next round
				r.Expect(r.told(expiry)).To(HaveLen(open))
				longest := time.Duration(0)
				for second := range 120 {
					r.storm(fmt.Sprint("in-", second, "-"), test.keys)
					r.wait(time.Second)
					for _, since := range r.told(expiry) {
						longest = max(longest, since)
					}
				}
				t.Log("an open Incident was told again after at most", longest)
				r.Expect(longest).To(BeNumerically("<=", expiry/3+3*time.Second))
				if _, hangs := test.reader.(hangingReader); !hangs && test.ended+test.keys > 0 {
					r.Expect(len(r.am.alerts)).To(BeNumerically(">", open+50), "the ends of others are told as well")
				}
			})
		})
	}
}

// told returns how long ago Alertmanager was told of each open Incident.
func (r *rig) told(expiry time.Duration) (since []time.Duration) {
	r.am.mu.Lock()
	defer r.am.mu.Unlock()
	for _, alert := range r.am.alerts {
		if alert.labels[alerts.LabelNamespace] == namespace {
			since = append(since, time.Since(alert.endsAt.Add(-expiry)))
		}
	}
	return since
}
