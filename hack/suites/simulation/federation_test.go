package simulation

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// site is one of the clusters of a federation.
type site struct {
	*WithT
	*world
	name string

	mu    sync.Mutex
	cut   bool       // the link to the other site
	conns []net.Conn // on it
}

const (
	siteNamespace = "team"
	linkAddress   = "10.0.0.1:8080"

	// Short times keep the runs short. The least that a hub allows is longer than the expiry of the leaf.
	leafExpiry = time.Minute
	beatEvery  = time.Minute
	beatGrace  = 10 * time.Second
	hubExpiry  = 2*(beatEvery+beatGrace) + time.Minute // by which clocks may differ

	// endsPosted is how long the end of an Incident is posted.
	endsPosted = 15 * time.Minute
)

// newSite makes a cluster with two replicas, which do not run yet.
func newSite(t *testing.T, name string) *site {
	t.Helper()
	g := NewWithT(t)
	defined, err := definitions()
	g.Expect(err).NotTo(HaveOccurred())
	w := &world{story: &Story{Settings: Settings{Elect: true, Writes: 8}}, network: newNetwork(1)}
	w.server, err = apiserver.New(apiserver.Options{Definitions: defined, WatchTimeout: 5 * time.Minute})
	g.Expect(err).NotTo(HaveOccurred())
	w.users, err = w.newClient(userClient)
	g.Expect(err).NotTo(HaveOccurred())
	w.server.CreateNamespaces(leaseNamespace, siteNamespace)
	for i := range 2 {
		w.replicas = append(w.replicas, &replica{world: w, name: fmt.Sprint("replica-", i)})
	}
	return &site{WithT: g, world: w, name: name}
}

// integrate makes an integration.
func (s *site) integrate(name string, spec v1alpha1.WebhookIntegrationSpec) {
	spec.Tokens = testenv.Tokens(siteNamespace, name)
	s.Expect(s.users.Create(context.Background(), &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: siteNamespace, Name: name}, Spec: spec,
	})).To(Succeed())
}

// takesIn makes an integration for the alerts of another site.
func (s *site) takesIn(leaf string) {
	beat := testenv.Heartbeat(siteNamespace, leaf, leaf, beatEvery, testenv.AnyRequest())
	beat.Spec.Grace = &metav1.Duration{Duration: beatGrace}
	s.Expect(s.users.Create(context.Background(), beat)).To(Succeed())
	s.integrate(leaf, v1alpha1.WebhookIntegrationSpec{Federate: true})
}

// forwards has the replicas post to the integration of another site that has the name of this one.
func (s *site) forwards(t *testing.T, hub *site) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "forwarding.yaml")
	s.Expect(os.WriteFile(path, fmt.Appendf(nil, `
alertmanagers:
- url: http://%s
  http_config: {authorization: {credentials: %s}}
external_labels: {cluster: %s}
expiry: %s
`, linkAddress, testenv.Token(siteNamespace, s.name), s.name, leafExpiry), 0o600)).To(Succeed())
	for _, r := range s.replicas {
		r.args = []string{"--alertmanager-config=" + path}
		r.dialer = &linkDialer{s, hub}
	}
}

// linkDialer connects replicas of one site to the other one, over a link that may be cut.
type linkDialer struct{ leaf, hub *site }

// DialContext implements alertmanager.Dialer.
func (d *linkDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	s := d.leaf
	s.mu.Lock()
	cut := s.cut
	s.mu.Unlock()
	p := d.hub.route(0)
	if cut || p == nil || address != linkAddress {
		return nil, errNobodyListens
	}
	conn, err := p.listener.dial(ctx, network, address)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.conns = append(s.conns, conn)
	}
	return conn, err
}

// setCut breaks the link to the hub, or repairs it.
func (s *site) setCut(cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = cut
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
}

func (s *site) start() {
	for _, r := range s.replicas {
		s.Expect(r.start()).To(Succeed())
		time.Sleep(odd)
	}
}

// failOver kills one replica after the other, so that the leader dies at least once.
func (s *site) failOver() {
	for _, r := range s.replicas {
		r.kill()
		time.Sleep(time.Minute)
		s.Expect(r.start()).To(Succeed())
		time.Sleep(time.Minute)
	}
}

// post sends an alert to any replica, for the integration of the site's own senders.
func (s *site) post(key, status string) {
	q, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://replica/api/v1/events/webhook",
		strings.NewReader(fmt.Sprintf(`{"dedup_key":%q,"title":%q,"status":%q,"severity":"error"}`, key, key, status)))
	s.Expect(err).NotTo(HaveOccurred())
	q.Header.Set("Authorization", "Bearer "+testenv.Token(siteNamespace, integrationName))
	response, err := s.route(0).client.Do(q)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(response.Body.Close()).To(Succeed())
	s.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
}

// act stores an AlertEvent of a user about an Incident.
func (s *site) act(incident string, report v1alpha1.Report) {
	report.By, report.IncidentName = "maria", incident
	s.Expect(s.users.Create(context.Background(), &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: siteNamespace, GenerateName: "act-"},
		Spec:       v1alpha1.AlertEventSpec{Report: &report},
	})).To(Succeed())
}

// incidents returns the Incidents by title.
func (s *site) incidents() map[string]*v1alpha1.Incident {
	list := &v1alpha1.IncidentList{}
	s.Expect(s.users.List(context.Background(), list, client.InNamespace(siteNamespace))).To(Succeed())
	found := map[string]*v1alpha1.Incident{}
	for i := range list.Items {
		found[list.Items[i].Status.Alert.Title] = &list.Items[i]
	}
	return found
}

// states returns the titles of the Incidents, each with its state and, if it is Resolved, the reason.
func (s *site) states() []string {
	var states []string
	for title, incident := range s.incidents() {
		state := title + " " + string(incident.Status.State)
		if resolved := meta.FindStatusCondition(incident.Status.Conditions, v1alpha1.ConditionResolved); resolved != nil &&
			incident.Status.State == v1alpha1.IncidentResolved {
			state += " " + resolved.Reason
		}
		states = append(states, state)
	}
	slices.Sort(states)
	return states
}

// stays makes sure that the states do not change for so long.
func (s *site) stays(d time.Duration, states ...string) {
	for range d / (30 * time.Second) {
		time.Sleep(30 * time.Second)
		s.Expect(s.states()).To(Equal(states), "at %s", time.Now())
	}
}

// federation runs a test with a leaf and a hub.
func federation(t *testing.T, play func(leaf, hub *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		leaf, hub := newSite(t, "leaf"), newSite(t, "hub")
		leaf.integrate(integrationName, v1alpha1.WebhookIntegrationSpec{})
		hub.takesIn("leaf")
		leaf.forwards(t, hub)
		defer func() {
			for _, s := range []*site{leaf, hub} {
				s.setCut(true)
				s.Expect(s.stop()).To(Succeed())
			}
			time.Sleep(drainTime)
		}()
		leaf.start()
		hub.start()
		time.Sleep(time.Minute)
		play(leaf, hub)
	})
}

const missed = "The heartbeat leaf is missed "

// The link is broken for six expiry. Meanwhile both leaders die, and Incidents of the leaf begin, end and are acknowledged.
func TestALinkIsDownForLongerThanALease(t *testing.T) {
	federation(t, func(leaf, hub *site) {
		hub.stays(2 * (beatEvery + beatGrace)) // a leaf that has nothing to tell is heard

		leaf.post("stays", "firing")
		leaf.post("ends", "firing")
		time.Sleep(5 * time.Second)
		hub.Expect(hub.incidents()["stays"].Status.Alert.Labels).To(And(
			HaveKeyWithValue("cluster", "leaf"), HaveKeyWithValue("integration", "app"), HaveKeyWithValue("tocsin_hops", "1")))
		hub.stays(2*hubExpiry, "ends Open", "stays Open")

		leaf.post("lasts", "firing")
		time.Sleep(time.Second)
		leaf.setCut(true)
		time.Sleep(beatEvery + beatGrace + 30*time.Second)
		down := []string{missed + "Open", "ends Open", "lasts Open", "stays Open"}
		hub.stays(time.Minute, down...)
		leaf.post("ends", "resolved")
		leaf.post("begins", "firing")
		leaf.act(leaf.incidents()["stays"].Name, v1alpha1.Report{Status: v1alpha1.AlertAcknowledged})
		leaf.failOver()
		hub.failOver()
		hub.stays(endsPosted-6*time.Minute, down...)
		leaf.post("lasts", "resolved")
		hub.stays(time.Minute, down...)

		leaf.setCut(false)
		time.Sleep(time.Minute)
		hub.Expect(hub.states()).To(Equal([]string{missed + "Resolved ResolvedByAlert", "begins Open", "ends Open",
			"lasts Resolved ResolvedByAlert", "stays Open"}), "the end of \"ends\" is not posted any more")
		hub.Expect(hub.incidents()["stays"].Status.Alert.Annotations).To(HaveKeyWithValue("acknowledged_by", "maria"))
		time.Sleep(hubExpiry)
		hub.stays(2*hubExpiry, missed+"Resolved ResolvedByAlert", "begins Open", "ends Resolved Expired",
			"lasts Resolved ResolvedByAlert", "stays Open")

		hub.act(hub.incidents()["begins"].Name, v1alpha1.Report{Status: v1alpha1.AlertResolved})
		time.Sleep(5 * time.Second)
		hub.Expect(hub.incidents()["begins"].Status.Timeline).To(ContainElement(
			And(HaveField("Type", v1alpha1.TransitionResolved), HaveField("By", "maria"))))
		time.Sleep(2 * time.Minute)
		hub.Expect(hub.states()).To(ContainElement("begins Open"), "it is open on the leaf")

		leaf.act(leaf.incidents()["stays"].Name, v1alpha1.Report{Status: v1alpha1.AlertUnacknowledged})
		time.Sleep(5 * time.Second)
		hub.Expect(hub.incidents()["stays"].Status.Alert.Annotations).To(HaveKeyWithValue("acknowledged_by", ""))
		leaf.post("stays", "resolved")
		time.Sleep(5 * time.Second)
		hub.Expect(hub.states()).To(ContainElement("stays Resolved ResolvedByAlert"))
		hub.Expect(hub.incidents()["stays"].Status.Episode.Number).To(BeEquivalentTo(1))
	})
}

// A whole Tocsin is down for longer than an expiry: first the leaf, then the hub.
func TestATocsinIsDownForLongerThanALease(t *testing.T) {
	federation(t, func(leaf, hub *site) {
		leaf.post("stays", "firing")
		leaf.post("ends", "firing")
		time.Sleep(5 * time.Second)
		for _, r := range leaf.replicas {
			r.kill()
		}
		time.Sleep(beatEvery + beatGrace + 30*time.Second)
		hub.stays(2*hubExpiry, missed+"Open", "ends Open", "stays Open")
		leaf.start()
		time.Sleep(time.Minute)
		up := []string{missed + "Resolved ResolvedByAlert", "ends Open", "stays Open"}
		hub.stays(2*hubExpiry, up...)

		for _, r := range hub.replicas {
			r.kill()
		}
		leaf.post("ends", "resolved")
		time.Sleep(endsPosted + time.Minute)
		hub.start()
		time.Sleep(time.Minute)
		hub.stays(time.Minute, up...)
		time.Sleep(hubExpiry)
		hub.stays(2*hubExpiry, missed+"Resolved ResolvedByAlert", "ends Resolved Expired", "stays Open")
	})
}

// Two Tocsins forward to each other. An alert passes three of them.
func TestALoopOfTwoEnds(t *testing.T) {
	loop(t, func(leaf, hub *site) {
		leaf.takesIn("hub")
		hub.forwards(t, leaf)
	}, []string{"", "2"}, []string{"1", "3"})
}

// A Tocsin forwards to itself.
func TestALoopOfOneEnds(t *testing.T) {
	loop(t, func(leaf, _ *site) {
		leaf.takesIn("leaf")
		leaf.forwards(t, leaf)
	}, []string{"", "1", "2", "3"}, nil)
}

// loop closes a loop, and makes sure that an alert of the leaf has as many Incidents as the hops that are given, and no more.
func loop(t *testing.T, shut func(leaf, hub *site), onLeaf, onHub []string) {
	t.Helper()
	federation(t, func(leaf, hub *site) {
		for _, s := range []*site{leaf, hub} {
			for _, r := range s.replicas {
				r.terminate()
			}
		}
		time.Sleep(drainTime)
		shut(leaf, hub)
		leaf.start()
		hub.start()
		time.Sleep(time.Minute)
		leaf.post("k", "firing")
		for range 6 {
			time.Sleep(time.Minute)
			leaf.Expect(leaf.hops(v1alpha1.IncidentOpen)).To(Equal(onLeaf))
			hub.Expect(hub.hops(v1alpha1.IncidentOpen)).To(Equal(onHub))
		}
		leaf.post("k", "resolved")
		time.Sleep(time.Minute)
		leaf.Expect(leaf.hops(v1alpha1.IncidentResolved)).To(Equal(onLeaf))
		hub.Expect(hub.hops(v1alpha1.IncidentResolved)).To(Equal(onHub))
	})
}

// hops returns the hops of the Incidents of alerts, which are all in a state.
func (s *site) hops(state v1alpha1.IncidentState) []string {
	list := &v1alpha1.IncidentList{}
	s.Expect(s.users.List(context.Background(), list, client.InNamespace(siteNamespace))).To(Succeed())
	var hops []string
	for i := range list.Items {
		if status := &list.Items[i].Status; !v1alpha1.IsOwnKey(list.Items[i].Spec.DedupKey) {
			s.Expect(status.State).To(Equal(state))
			hops = append(hops, status.Alert.Labels[v1alpha1.HopsLabel])
		}
	}
	slices.Sort(hops)
	return hops
}
