package v1alpha1_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

func TestBagsKeepTheirValues(t *testing.T) {
	incident := newIncident(t, testenv.Namespace(t, apiClient), "prometheus", "bags")
	for name, value := range map[string]string{
		"the largest integer":               `9223372036854775807`,
		"the smallest integer":              `-9223372036854775808`,
		"an integer beyond 2^53":            `9007199254740993`,
		"a fraction":                        `0.1`,
		"a fraction of 17 digits":           `0.30000000000000004`,
		"a huge number":                     `1.7976931348623157e+308`,
		"a tiny number":                     `5e-324`,
		"null":                              `null`,
		"true":                              `true`,
		"an empty string":                   `""`,
		"a string that looks like a number": `"0123"`,
		"other scripts and emoji":           `"żółw 龍 🔥"`,
		"an escaped NUL":                    `"\u0000"`,
		"what HTML would escape":            `"\u003ca href=\"x\"\u003e\u0026"`,
		"an empty list":                     `[]`,
		"an empty object":                   `{}`,
		"a list of anything":                `[1,"a",null,{"b":[[]]},false]`,
		"names like those of Kubernetes":    `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}`,
		"the empty key":                     `{"":{"":null}}`,
		"sixty-four levels":                 strings.Repeat(`[`, 64) + strings.Repeat(`]`, 64),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			bag := v1alpha1.Bag{"": json.RawMessage(value), "key/of any.kind ü": json.RawMessage(value)}
			incident.Status = v1alpha1.IncidentStatus{
				State: v1alpha1.IncidentOpen, Alert: v1alpha1.AlertContent{Values: bag, Custom: bag},
			}
			g.Expect(apiClient.Status().Update(t.Context(), incident)).To(Succeed())
			read := &v1alpha1.Incident{}
			g.Expect(apiClient.Get(t.Context(), client.ObjectKeyFromObject(incident), read)).To(Succeed())
			content := &read.Status.Alert
			for name, got := range map[string]v1alpha1.Bag{"values": content.Values, "custom": content.Custom} {
				g.Expect(got).To(HaveLen(2), name)
				for key := range bag {
					g.Expect(string(got[key])).To(Equal(value), "%s[%q]", name, key)
				}
			}
		})
	}
}

func TestManagedFieldsStaySmall(t *testing.T) {
	namespace := testenv.Namespace(t, apiClient)
	bag, texts := v1alpha1.Bag{}, map[string]string{}
	for i := range 256 {
		texts[fmt.Sprint("some-key-", i)], bag[fmt.Sprint("some-key-", i)] = "value", json.RawMessage(`"value"`)
	}
	content := v1alpha1.AlertContent{Title: "t", Labels: texts, Annotations: texts, Values: bag, Custom: bag}
	managed := func(g *WithT, o client.Object) {
		text := string(must(json.Marshal(o.GetManagedFields())))
		g.Expect(text).To(ContainSubstring("f:"))
		g.Expect(text).NotTo(ContainSubstring("some-key-"), "one entry for each key of a bag")
		g.Expect(len(text)).To(BeNumerically("<", 2048))
	}
	t.Run("of an AlertEvent", func(t *testing.T) {
		g := NewWithT(t)
		event := textEvent(g, namespace, v1alpha1.Alert{Status: v1alpha1.AlertResolved, DedupKey: "a", AlertContent: content})
		g.Expect(apiClient.Create(t.Context(), event)).To(Succeed())
		managed(g, event)
	})
	t.Run("of an Incident", func(t *testing.T) {
		g := NewWithT(t)
		incident := newIncident(t, namespace, "prometheus", "many-keys")
		incident.Status = v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen, Alert: content}
		now := v1alpha1.NewTimestamp(time.Now())
		for i := range v1alpha1.MaxLedger {
			incident.Status.Ledger.Events = append(incident.Status.Ledger.Events, v1alpha1.LedgerEntry{UID: "u", Name: fmt.Sprint(i)})
		}
		for range v1alpha1.MaxTimeline {
			incident.Status.Timeline = append(incident.Status.Timeline, v1alpha1.Transition{Type: v1alpha1.TransitionOpened, Time: now})
		}
		g.Expect(apiClient.Status().Update(t.Context(), incident)).To(Succeed())
		managed(g, incident)
	})
}

func newIncident(t *testing.T, namespace, integration, key string) *v1alpha1.Incident {
	t.Helper()
	incident := &v1alpha1.Incident{Spec: v1alpha1.IncidentSpec{IntegrationName: integration, DedupKey: key}}
	incident.Name, incident.Namespace = v1alpha1.IncidentName(integration, key), namespace
	if err := apiClient.Create(t.Context(), incident); err != nil {
		t.Fatalf("creating an Incident: %v", err)
	}
	return incident
}

func TestAnIncidentStaysUnder256KiB(t *testing.T) {
	g := NewWithT(t)
	incident := newIncident(t, testenv.Namespace(t, apiClient), strings.Repeat("a", 63), strings.Repeat("&", 1024))
	now := v1alpha1.NewTimestamp(time.Now())
	status := v1alpha1.IncidentStatus{
		State:        v1alpha1.IncidentResolved,
		AlertCount:   1 << 62,
		Episode:      &v1alpha1.Episode{Number: 1 << 62, StartTime: now, LastStartTime: &now, AlertCount: 1 << 62},
		OpenedTime:   &now,
		ResolvedTime: &now, LastAlertTime: &now,
		Alert: v1alpha1.AlertContent{
			Title: strings.Repeat("&", 1024), Description: strings.Repeat("&", 16384), Severity: v1alpha1.SeverityCritical,
			StartTime: &now, EndTime: &now, Custom: v1alpha1.Bag{},
		},
		Ledger: v1alpha1.Ledger{ResourceVersion: strings.Repeat("9", 32), Digest: strings.Repeat("f", 32)},
	}
	for i := 0; alertcontent.Size(&status.Alert) < alertcontent.MaxBytes; i++ {
		status.Alert.Custom[fmt.Sprint(i)] = json.RawMessage(`"` + strings.Repeat("x", 100) + `"`)
	}
	alertcontent.TrimTo(&status.Alert, alertcontent.MaxBytes)
	name, comment := plaintext.ShortName(strings.Repeat("&", 256)), plaintext.ShortComment(strings.Repeat("&", 1024))
	for range v1alpha1.MaxTimeline {
		status.Timeline = append(status.Timeline, v1alpha1.Transition{
			Type: v1alpha1.TransitionUnacknowledged, Time: now, Message: "Unacknowledged by " + name, By: name, Comment: comment,
		})
	}
	status.Acknowledgement = &v1alpha1.Acknowledgement{Time: now, By: name, Comment: comment, Severity: v1alpha1.SeverityCritical}
	status.Resolution = &v1alpha1.Resolution{Reason: v1alpha1.ReasonResolvedByUser, By: name}
	status.Assignee = &v1alpha1.Assignee{Name: name, Time: now, By: name}
	status.SilencedBy = &v1alpha1.Silence{
		EndTime: now, By: name, Comment: comment, ID: strings.Repeat("i", 64), Link: strings.Repeat("l", 2048),
	}
	status.Silence = &v1alpha1.Silence{EndTime: now, By: name, Comment: strings.Repeat("&", 1024)}
	for range v1alpha1.MaxLedger {
		status.Ledger.Events = append(status.Ledger.Events, v1alpha1.LedgerEntry{
			UID: strings.Repeat("u", 36), Name: strings.Repeat("n", 253),
		})
	}
	for _, condition := range []string{v1alpha1.ConditionResolved, v1alpha1.ConditionAcknowledged} {
		status.Conditions = append(status.Conditions, metav1.Condition{
			Type: condition, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonResolvedByAlert,
			Message: strings.Repeat("m", 256), LastTransitionTime: metav1.Now(), ObservedGeneration: 1,
		})
	}
	incident.Status = status
	g.Expect(apiClient.Status().Update(t.Context(), incident)).To(Succeed())
	stored, err := rawClient.Get().Namespace(incident.Namespace).Resource("incidents").Name(incident.Name).DoRaw(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(stored)).To(And(BeNumerically("<", 256<<10), BeNumerically(">", alertcontent.MaxBytes)))
	t.Logf("the largest Incident has %d bytes", len(stored))
}

func TestFieldSelectors(t *testing.T) {
	g := NewWithT(t)
	namespace := testenv.Namespace(t, apiClient)
	for key, status := range map[string]v1alpha1.IncidentStatus{
		"1": {State: v1alpha1.IncidentOpen, Alert: v1alpha1.AlertContent{Severity: v1alpha1.SeverityCritical}},
		"2": {State: v1alpha1.IncidentOpen, Alert: v1alpha1.AlertContent{Severity: v1alpha1.SeverityInfo}},
		"3": {State: v1alpha1.IncidentResolved, Alert: v1alpha1.AlertContent{Severity: v1alpha1.SeverityInfo}},
	} {
		incident := newIncident(t, namespace, "integration-"+key, key)
		incident.Status = status
		g.Expect(apiClient.Status().Update(t.Context(), incident)).To(Succeed())
	}
	for selector, want := range map[string][]string{
		"status.state=Open":                                {"1", "2"},
		"status.state=Resolved":                            {"3"},
		"status.state!=Open":                               {"3"},
		"status.alert.severity=info":                       {"2", "3"},
		"status.state=Open,status.alert.severity=critical": {"1"},
		"spec.integrationName=integration-2":               {"2"},
		"status.state=Unknown":                             {},
	} {
		list := &v1alpha1.IncidentList{}
		g.Expect(apiClient.List(t.Context(), list, client.InNamespace(namespace),
			client.MatchingFieldsSelector{Selector: fields.ParseSelectorOrDie(selector)})).To(Succeed())
		keys := []string{}
		for _, incident := range list.Items {
			keys = append(keys, incident.Spec.DedupKey)
		}
		g.Expect(keys).To(ConsistOf(want), selector)
	}
}

func TestDeepCopiesShareNothing(t *testing.T) {
	for _, test := range []struct {
		file string
		read client.Object
	}{
		{"webhookintegration.yaml", &v1alpha1.WebhookIntegration{}},
		{"alertevent-report.yaml", &v1alpha1.AlertEvent{}},
		{"incident.yaml", &v1alpha1.Incident{}},
	} {
		t.Run(test.file, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(json.Unmarshal(must(json.Marshal(full(t, test.file))), test.read)).To(Succeed())
			before := must(json.Marshal(test.read))
			duplicate := test.read.DeepCopyObject()
			g.Expect(duplicate).To(Equal(test.read))
			scribble(duplicate)
			g.Expect(must(json.Marshal(duplicate))).NotTo(Equal(before))
			g.Expect(must(json.Marshal(test.read))).To(Equal(before))
		})
	}
}

// scribble changes in place all that lies behind a pointer, a list or a map.
func scribble(o any) {
	content := func(c *v1alpha1.AlertContent) {
		for key := range c.Labels {
			c.Labels[key], c.Annotations[key] = "1", "1"
		}
		for _, bag := range []v1alpha1.Bag{c.Values, c.Custom} {
			for _, value := range bag {
				for i := range value {
					value[i] = '1'
				}
			}
		}
		c.StartTime.Time, c.EndTime.Time = time.Unix(0, 0), time.Unix(0, 0)
	}
	switch o := o.(type) {
	case *v1alpha1.WebhookIntegration:
		o.Spec.Tokens[0].ExpirationTime.Time = time.Unix(0, 0)
		o.Spec.Tokens[0].Name = "scribble"
		o.Spec.Defaults.Labels["team"] = "scribble"
		o.Spec.Retention.Duration = 0
		o.Status.Conditions[0].Type = "Scribble"
		o.Status.LastRejection.Reason = "Scribble"
	case *v1alpha1.AlertEvent:
		o.Spec.Defaults.Labels["team"] = "scribble"
		o.Spec.Report.SilenceFor.Duration = 0
	case *v1alpha1.Incident:
		content(&o.Status.Alert)
		o.Status.Timeline[0].Message = "scribble"
		o.Status.Ledger.Events[0].UID = "scribble"
		o.Status.Episode.AlertCount = 0
		o.Status.OpenedTime.Time = time.Unix(0, 0)
	}
}
