package cli

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/action"
)

// silencing is the condition Silenced and the silence that it describes.
type silencing struct {
	condition metav1.Condition
	by        *v1alpha1.Silence
}

// actServer has one Incident, whose silences come one after the other, one a read; the last one stays. AlertEvents are folded at once.
type actServer struct {
	client.WithWatch
	forwarded  *metav1.Condition // of the integration
	request    *v1alpha1.Silence // of the Incident
	silenced   []silencing
	told       *v1alpha1.Forwarding
	neverFolds bool
	created    int
}

func (s *actServer) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	switch object := object.(type) {
	case *v1alpha1.WebhookIntegration:
		if s.forwarded != nil {
			object.Status.Conditions = []metav1.Condition{*s.forwarded}
		}
		return nil
	case *v1alpha1.Incident:
		object.Name, object.Status.Silence, object.Status.Forwarding = key.Name, s.request, s.told
		if len(s.silenced) > 0 {
			object.Status.Conditions, object.Status.SilencedBy = []metav1.Condition{s.silenced[0].condition}, s.silenced[0].by
		}
		if len(s.silenced) > 1 {
			s.silenced = s.silenced[1:]
		}
		return nil
	}
	if s.neverFolds {
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (s *actServer) Create(context.Context, client.Object, ...client.CreateOption) error {
	s.created++
	return nil
}

var silenceEnd = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func silencedBy(user string, until time.Time) silencing {
	return silencing{metav1.Condition{
		Type: v1alpha1.ConditionSilenced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSilenced,
		Message: user + " silenced the incident in Alertmanager until " + until.Format(time.RFC3339) + ".",
	}, &v1alpha1.Silence{By: user, EndTime: v1alpha1.NewTimestamp(until)}}
}

func notSilenced(reason, message string) silencing {
	return silencing{metav1.Condition{Type: v1alpha1.ConditionSilenced, Status: metav1.ConditionFalse, Reason: reason, Message: message}, nil}
}

func requestOfMaria() *v1alpha1.Silence {
	return &v1alpha1.Silence{By: "maria", EndTime: v1alpha1.NewTimestamp(silenceEnd)}
}

func TestSilenceCommandsReportWhatIsSo(t *testing.T) {
	forwarding := &metav1.Condition{Type: v1alpha1.ConditionForwarded, Status: metav1.ConditionTrue}
	requested := notSilenced(v1alpha1.ReasonSilenceRequested, "A silence was requested; it was not found in Alertmanager yet.")
	for sentence, test := range map[string]struct {
		server  actServer
		length  time.Duration
		says    string
		problem string
		created int
	}{
		"a silence is reported when Alertmanager has it": {
			server: actServer{forwarded: forwarding, request: requestOfMaria(),
				silenced: []silencing{requested, requested, silencedBy("maria", silenceEnd)}},
			length: 2 * time.Hour, says: "incident.tocsin.dev/disk silenced for 2h\n", created: 1,
		},
		"a silence that ends earlier is not the requested one": {
			server: actServer{forwarded: forwarding, request: requestOfMaria(),
				silenced: []silencing{silencedBy("alex", silenceEnd.Add(-time.Hour))}},
			length: 2 * time.Hour, problem: "timed out after 200ms; the silence is requested, but not in effect yet: alex silenced", created: 1,
		},
		"a silence that does not come is a timeout": {
			server: actServer{forwarded: forwarding, request: requestOfMaria(), silenced: []silencing{requested}},
			length: 2 * time.Hour, problem: "disk: timed out after 200ms; the silence is requested, but not in effect yet: A silence was",
			created: 1,
		},
		"nothing is requested if forwarding is off": {
			server: actServer{}, length: 2 * time.Hour, problem: "Tocsin does not forward incidents of integration \"mon\"",
		},
		"nothing is requested if the integration is not forwarded": {
			server: actServer{forwarded: &metav1.Condition{Type: v1alpha1.ConditionForwarded, Status: metav1.ConditionFalse,
				Reason: v1alpha1.ReasonForwardNever, Message: "spec.forward is Never."}},
			length: 2 * time.Hour, problem: "are not forwarded to an Alertmanager: spec.forward is Never.",
		},
		"nothing is requested if the Incident is not forwarded": {
			server: actServer{forwarded: forwarding, told: &v1alpha1.Forwarding{
				Reason: v1alpha1.ForwardingFromAlertmanager, Message: "The alerts come from Alertmanager or vmalert.",
			}},
			length: 2 * time.Hour, problem: "no Alertmanager gets it: The alerts come from Alertmanager or vmalert.",
		},
		"the silence of a muted Incident is not awaited": {
			server: actServer{forwarded: forwarding, told: &v1alpha1.Forwarding{Reason: v1alpha1.ForwardingMuted}, request: requestOfMaria(),
				silenced: []silencing{requested}},
			length: 2 * time.Hour, says: "incident.tocsin.dev/disk silenced for 2h, and not forwarded meanwhile, because of a maintenance window or forwardAfter\n", created: 1,
		},
		"a heartbeat is silenced although its integration is not forwarded": {
			server: actServer{forwarded: &metav1.Condition{Type: v1alpha1.ConditionForwarded, Status: metav1.ConditionFalse,
				Reason: v1alpha1.ReasonFromAlertmanager}, told: &v1alpha1.Forwarding{Reason: v1alpha1.ForwardingPosted},
				request: requestOfMaria(), silenced: []silencing{silencedBy("maria", silenceEnd)}},
			length: 2 * time.Hour, says: "incident.tocsin.dev/disk silenced for 2h\n", created: 1,
		},
		"an end is reported when the silence is gone": {
			server: actServer{request: requestOfMaria(),
				silenced: []silencing{silencedBy("maria", silenceEnd), notSilenced(v1alpha1.ReasonNotSilenced, "No silence.")}},
			says: "incident.tocsin.dev/disk unsilenced\n", created: 1,
		},
		"another silence is named after the end of the requested one": {
			server: actServer{request: requestOfMaria(),
				silenced: []silencing{silencedBy("maria", silenceEnd), silencedBy("alex", silenceEnd)}},
			says:    "incident.tocsin.dev/disk unsilenced, but another silence covers it: alex silenced the incident in Alertmanager until 2026-05-04T12:00:00Z.\n",
			created: 1,
		},
		"another silence is named if none was requested": {
			server: actServer{silenced: []silencing{silencedBy("alex", silenceEnd)}},
			says:   "incident.tocsin.dev/disk has no requested silence, but is silenced: alex silenced the incident in Alertmanager until 2026-05-04T12:00:00Z.\n",
		},
		"an end that does not come is a timeout": {
			server:  actServer{request: requestOfMaria(), silenced: []silencing{silencedBy("maria", silenceEnd)}},
			problem: "timed out after 200ms; the end of the silence is stored, but Alertmanager still has it: maria", created: 1,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			var out bytes.Buffer
			p := newPlugin(genericiooptions.NewTestIOStreamsDiscard())
			p.screen = &screen{out: &out}
			o := &actOptions{plugin: p, wait: true, timeout: time.Minute,
				Action: action.Action{Status: v1alpha1.AlertSilenced, Length: test.length}}
			if strings.Contains(test.problem, "timed out") {
				o.timeout = 200 * time.Millisecond
			}
			c := &cluster{WithWatch: &test.server, namespace: "shop"}
			incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "disk"}}
			incident.Spec.IntegrationName = "mon"
			incident.Status.Silence, incident.Status.Forwarding = test.server.request, test.server.told
			if len(test.server.silenced) > 0 {
				incident.Status.Conditions = []metav1.Condition{test.server.silenced[0].condition}
			}
			err := o.apply(t.Context(), c, []*v1alpha1.Incident{incident}, "maria")
			g.Expect(out.String()).To(Equal(test.says))
			g.Expect(test.server.created).To(Equal(test.created))
			if test.problem == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(test.problem)))
			}
		})
	}
}

func TestInterruptedCommandsTellWhatTheySubmitted(t *testing.T) {
	g := NewWithT(t)
	var problems bytes.Buffer
	p := newPlugin(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: io.Discard, ErrOut: &problems})
	p.screen = &screen{out: io.Discard}
	o := &actOptions{plugin: p, Action: action.Action{Status: v1alpha1.AlertResolved}, wait: true, timeout: time.Minute}
	ctx, interrupt := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, interrupt)
	server := &actServer{neverFolds: true}
	var incidents []*v1alpha1.Incident
	for _, name := range []string{"disk", "queue"} {
		incidents = append(incidents, &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	err := o.apply(ctx, &cluster{WithWatch: server}, incidents, "maria")
	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(server.created).To(Equal(2))
	g.Expect(problems.String()).To(Equal("Submitted, but not awaited: disk, queue will be resolved.\n"))
}

func TestATimeoutTellsAllThatWasSubmitted(t *testing.T) {
	g := NewWithT(t)
	var problems bytes.Buffer
	p := newPlugin(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: io.Discard, ErrOut: &problems})
	p.screen = &screen{out: io.Discard}
	o := &actOptions{plugin: p, Action: action.Action{Status: v1alpha1.AlertResolved}, wait: true, timeout: 50 * time.Millisecond}
	var incidents []*v1alpha1.Incident
	for _, name := range []string{"disk", "queue"} {
		incidents = append(incidents, &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	err := o.apply(t.Context(), &cluster{WithWatch: &actServer{neverFolds: true}}, incidents, "maria")
	g.Expect(err).To(MatchError(ContainSubstring("timed out after 50ms")))
	g.Expect(problems.String()).To(Equal("Submitted, but not awaited: disk, queue will be resolved.\n"))
}

func TestAnInterruptEndsTheQuestion(t *testing.T) {
	g := NewWithT(t)
	never, writer := io.Pipe()
	defer func() { _ = writer.Close() }()
	ctx, interrupt := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, interrupt)
	_, err := readLine(ctx, never)
	g.Expect(err).To(MatchError(context.Canceled))
	line, err := readLine(t.Context(), bytes.NewBufferString("yes"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(line).To(Equal("yes"))
}
