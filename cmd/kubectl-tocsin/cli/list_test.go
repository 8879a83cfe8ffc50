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
	change    func() // called after each list that is complete
	requests  []string
}

func (s *listServer) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	selector := fields.Everything()
	if options.FieldSelector != nil {
		selector = options.FieldSelector
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
	if s.change != nil {
		s.change()
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
func printed(g *WithT, s *listServer) (states []string, stderr string) {
	out, errOut := &bytes.Buffer{}, &bytes.Buffer{}
	p := &plugin{IOStreams: genericiooptions.IOStreams{Out: out, ErrOut: errOut}, now: time.Now}
	p.screen = newScreen(out, colorNever)
	o := &getOptions{plugin: p, output: newOutputFlag(), filter: filter{allNamespaces: true}}
	o.output.noHeaders = true
	g.Expect(o.printAll(context.Background(), &cluster{WithWatch: s})).To(Succeed())
	for line := range strings.Lines(out.String()) {
		states = append(states, strings.Fields(line)[2])
	}
	return states, errOut.String()
}

func TestManyIncidentsAreListedInChunksOpenOnesFirst(t *testing.T) {
	g := NewWithT(t)
	s := newListServer(3*listChunk + 10)
	states, stderr := printed(g, s)
	g.Expect(states).To(HaveLen(len(s.incidents)))
	g.Expect(states[:len(s.incidents)/10]).To(HaveEach("Open"))
	g.Expect(states[len(s.incidents)/10:]).To(HaveEach("Resolved"))
	g.Expect(stderr).To(BeEmpty(), "stderr is no terminal")
	g.Expect(s.requests[1]).To(Equal("status.state=Open"))
}

func TestFewIncidentsAreListedByOneRequest(t *testing.T) {
	g := NewWithT(t)
	s := newListServer(30)
	states, _ := printed(g, s)
	g.Expect(states).To(HaveLen(30))
	g.Expect(states[:3]).To(HaveEach("Open"))
	g.Expect(s.requests).To(HaveLen(1))
	_, stderr := printed(g, newListServer(0))
	g.Expect(stderr).To(Equal("No incidents found.\n"))
}

// An Incident that changes its state between the list of the open ones and the list of the others is neither missing nor
// printed twice.
func TestNoIncidentIsMissingIfItChangesWhileListed(t *testing.T) {
	g := NewWithT(t)
	s := newListServer(2 * listChunk)
	s.change = func() {
		s.change = nil
		s.incidents[0].Status.State = v1alpha1.IncidentOpen // reopened
		s.incidents[9].Status.State = v1alpha1.IncidentResolved
	}
	states, _ := printed(g, s)
	g.Expect(states).To(HaveLen(len(s.incidents)))
	open := 0
	for _, state := range states {
		if state == "Open" {
			open++
		}
	}
	g.Expect(open).To(Equal(len(s.incidents)/10 + 1))
}

func TestAnOpenListSelectsByState(t *testing.T) {
	g := NewWithT(t)
	s := newListServer(12 * listChunk)
	onlyOpen := &filter{allNamespaces: true, states: []string{"Open"}}
	open, err := (&plugin{}).incidents(context.Background(), &cluster{WithWatch: s}, onlyOpen, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(open).To(HaveLen(len(s.incidents) / 10))
	g.Expect(open[0].Status.Alert.Description).NotTo(BeEmpty(), "whole ones, for other formats")
	g.Expect(s.requests).To(HaveEach("status.state=Open"))
}

func TestProgressIsShownOnATerminalWhenItTakesLong(t *testing.T) {
	g := NewWithT(t)
	out := &bytes.Buffer{}
	shows := &progress{out: out, now: time.Now, next: time.Now().Add(progressDelay)}
	shows.update("Listed %d incidents …", 500)
	shows.clear()
	g.Expect(out.String()).To(BeEmpty(), "it does not take long")
	shows.next = time.Now()
	shows.update("Listed %d incidents …", 500)
	shows.update("Listed %d incidents …", 501)
	g.Expect(out.String()).To(Equal("\r\x1b[KListed 500 incidents …"), "at most one update in progressInterval")
	shows.clear()
	g.Expect(out.String()).To(HaveSuffix("\r\x1b[K"))
	var none *progress
	none.update("Listed")
	none.clear()
}
