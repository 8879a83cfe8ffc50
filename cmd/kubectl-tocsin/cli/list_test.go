package cli

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// listServer lists Incidents in chunks, as an API server does.
type listServer struct {
	client.WithWatch
	incidents []v1alpha1.Incident
	requests  []string
}

func (s *listServer) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	selector := fields.Everything()
	if options.FieldSelector != nil {
		selector = options.FieldSelector
	}
	if _, ok := list.(*v1alpha1.WebhookIntegrationList); ok {
		return nil // there are none
	}
	s.requests = append(s.requests, selector.String())
	into, ok := list.(*v1alpha1.IncidentList)
	if !ok {
		return fmt.Errorf("a list of %T", list)
	}
	from, _ := strconv.Atoi(options.Continue)
	for i := from; i < len(s.incidents); i++ {
		if int64(len(into.Items)) == options.Limit {
			into.Continue = strconv.Itoa(i)
			return nil
		}
		if incident := &s.incidents[i]; selector.Matches(fields.Set{"status.state": string(incident.Status.State)}) {
			into.Items = append(into.Items, *incident.DeepCopy())
		}
	}
	return nil
}

// newListServer has Incidents of which one in ten is Open.
func newListServer(count int) *listServer {
	s := &listServer{}
	for i := range count {
		incident := v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprintf("mon-%05d", i), UID: types.UID(strconv.Itoa(i)),
		}}
		incident.Status.State = v1alpha1.IncidentResolved
		if i%10 == 9 {
			incident.Status.State = v1alpha1.IncidentOpen
		}
		incident.Status.Alert = v1alpha1.AlertContent{Title: "Disk full", Description: "long", Severity: v1alpha1.SeverityError}
		s.incidents = append(s.incidents, incident)
	}
	return s
}

// printed runs "get" and returns the states of the rows.
func printed(g *WithT, s *listServer, all bool) (states []string, stderr string) {
	out, errOut := &bytes.Buffer{}, &bytes.Buffer{}
	p := &plugin{IOStreams: genericiooptions.IOStreams{Out: out, ErrOut: errOut}, now: time.Now, color: colorNever}
	p.screen = newScreen(out, colorNever)
	o := &getOptions{plugin: p, output: newOutputFlag(), filter: filter{allNamespaces: true}, all: all}
	o.output.noHeaders = true
	g.Expect(o.run(context.Background(), &cluster{WithWatch: s}, nil)).To(Succeed())
	for line := range strings.Lines(out.String()) {
		states = append(states, strings.Fields(line)[2])
	}
	return states, errOut.String()
}

func TestAllIncidentsAreListedInChunksOpenOnesFirst(t *testing.T) {
	g := NewWithT(t)
	s := newListServer(3*listChunk + 10)
	states, stderr := printed(g, s, true)
	g.Expect(states).To(HaveLen(len(s.incidents)))
	g.Expect(states[:len(s.incidents)/10]).To(HaveEach("Open"))
	g.Expect(states[len(s.incidents)/10:]).To(HaveEach("Resolved"))
	g.Expect(stderr).To(BeEmpty(), "stderr is no terminal")
	g.Expect(s.requests).To(HaveLen(4))
}

// The API server selects the open Incidents: a week of Resolved ones is not read.
func TestOpenIncidentsAreListedUnlessAllAreWanted(t *testing.T) {
	g := NewWithT(t)
	s := newListServer(12 * listChunk)
	states, _ := printed(g, s, false)
	g.Expect(states).To(HaveLen(len(s.incidents) / 10))
	g.Expect(states).To(HaveEach("Open"))
	g.Expect(s.requests).To(HaveEach("status.state=Open"))

	_, stderr := printed(g, newListServer(0), false)
	g.Expect(stderr).To(Equal("No open incidents found; --all lists resolved ones.\n"))
	_, stderr = printed(g, newListServer(0), true)
	g.Expect(stderr).To(Equal("No incidents found.\n"))
}

func TestGetSaysOfHowManyIncidentsNobodyIsTold(t *testing.T) {
	g := NewWithT(t)
	s := newListServer(30)
	for i := range s.incidents[:25] { // one of ten is open
		s.incidents[i].Status.Forwarding = &v1alpha1.Forwarding{Reason: v1alpha1.ForwardingFailing}
	}
	states, stderr := printed(g, s, false)
	g.Expect(states).To(Equal([]string{"Open,Failing", "Open,Failing", "Open"}))
	g.Expect(stderr).To(Equal("Nobody is told of 2 open incidents: no Alertmanager accepts what Tocsin forwards.\n"))
}

func TestIncidentsForOtherFormatsAreWhole(t *testing.T) {
	g := NewWithT(t)
	onlyOpen := &filter{allNamespaces: true, states: []string{"Open"}}
	for prune, description := range map[bool]string{false: "long", true: ""} {
		open, err := (&plugin{}).incidents(context.Background(), &cluster{WithWatch: newListServer(10)}, onlyOpen, prune, nil)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(open).To(HaveLen(1))
		g.Expect(open[0].Status.Alert.Description).To(Equal(description))
	}
}
