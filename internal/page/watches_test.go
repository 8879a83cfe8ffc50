package page

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

// The tabs of a user share one watch; when the token expires, they get no more rows, and the watch ends.
func TestTabsShareAWatchUntilTheTokenExpires(t *testing.T) {
	g := NewWithT(t)
	r := newRecorder(t)
	s := startShared(t, r)
	var tabs []*bufio.Scanner
	for range 3 {
		tab := bufio.NewScanner(s.ask(t, http.MethodGet, "api/stream", nil, nil).Body)
		g.Expect(tab.Scan()).To(BeTrue())
		tabs = append(tabs, tab)
	}
	watches := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.watches
	}
	g.Eventually(watches, "10s", "10ms").Should(Equal(1))
	g.Expect(s.users().watches).To(HaveLen(1))
	r.expire(true)
	for _, tab := range tabs {
		var last message
		for tab.Scan() {
			last = message{}
			g.Expect(json.Unmarshal(tab.Bytes(), &last)).To(Succeed())
		}
		g.Expect(last.Code).To(Equal(401))
		g.Expect(last.Whole).To(BeTrue())
		g.Expect(last.Rows).To(BeEmpty())
		g.Expect(last.Problem).To(Equal(errReject.Error()))
	}
	g.Expect(watches()).To(Equal(1))
	s.users().mu.Lock()
	defer s.users().mu.Unlock()
	g.Expect(s.users().watches).To(BeEmpty())
}

// An API server that has just started denies everything for a while.
func TestAShortDenialEndsNoWatch(t *testing.T) {
	g := NewWithT(t)
	r := newRecorder(t)
	s := startShared(t, r)
	tab := bufio.NewScanner(s.ask(t, http.MethodGet, "api/stream", nil, nil).Body)
	next := func() (m message) {
		g.Expect(tab.Scan()).To(BeTrue())
		g.Expect(json.Unmarshal(tab.Bytes(), &m)).To(Succeed())
		g.Expect(m.Code).To(BeZero())
		return m
	}
	synced := func() bool { return next().Synced }
	g.Eventually(synced, "10s", "1ms").Should(BeTrue())
	r.expire(true)
	var m message
	g.Eventually(func() string { m = next(); return m.Problem }, "10s", "1ms").ShouldNot(BeEmpty())
	g.Expect(m.Whole).To(BeFalse(), "the rows stay meanwhile")
	r.expire(false)
	g.Eventually(func() string { return next().Problem }, "10s", "1ms").Should(BeEmpty())
}

func TestWatchesAreBounded(t *testing.T) {
	g := NewWithT(t)
	u := newUsers(nil)
	u.ctx = t.Context()
	add := func(user, namespace string) (*watch, error) {
		key := watchKey{namespace: user + "/" + namespace}
		return u.attach(&caller{client: newFake(), namespace: namespace, key: key, user: user}, true)
	}
	var last *watch
	for i := range maxWatchesPerUser {
		w, err := add("maria", strings.Repeat("n", i+1))
		g.Expect(err).NotTo(HaveOccurred())
		last = w
	}
	_, err := add("maria", "more")
	g.Expect(err).To(MatchError(ContainSubstring("already")))
	last.leave()
	_, err = add("maria", "more")
	g.Expect(err).NotTo(HaveOccurred(), "a watch that no tab follows makes room")
	g.Expect(u.watches).To(HaveLen(maxWatchesPerUser))
	for i := maxWatchesPerUser; i < maxWatches; i++ {
		_, err := add(strings.Repeat("u", i), "n")
		g.Expect(err).NotTo(HaveOccurred())
	}
	oldest := u.watches[watchKey{namespace: "maria/n"}]
	for n := range maxWatchesPerUser - 1 {
		_, err = add(fmt.Sprint("one-more-", n), "n")
		g.Expect(err).NotTo(HaveOccurred(), "who has most loses one")
	}
	g.Expect(oldest.problem()).To(MatchError(errOthers))
	_, err = add("too-many", "n")
	g.Expect(err).To(MatchError("the page has too many users"), "each has one")
	_, err = add("maria", "more")
	g.Expect(err).NotTo(HaveOccurred(), "it is the one that is left")

	// The Incidents of a watch are bounded, too.
	w, many := u.watches[watchKey{namespace: "maria/more"}], newFake()
	incident := incidentNamed("more", "a")
	incident.Status.Alert.Title = strings.Repeat("x", maxWatchBytes)
	g.Expect(many.Create(t.Context(), incident)).To(Succeed())
	w.drop(nil)
	w, err = u.attach(&caller{client: many, namespace: "more", key: w.key, user: "maria"}, true)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(w.problem, "10s", "10ms").Should(MatchError(errTooMany))
	g.Expect(u.watches).NotTo(HaveKey(w.key))
}

// A proxy refreshes the token, and the chart is the first to ask with the new one: its watch has no Incidents yet.
func TestTheChartWaitsForTheWatchOfANewToken(t *testing.T) {
	g := NewWithT(t)
	s := startShared(t, newRecorder(t))
	response := s.ask(t, http.MethodGet, "api/counts?hours=1", nil, nil)
	g.Expect(response.StatusCode).To(Equal(http.StatusOK))
	var counted counts
	g.Expect(json.NewDecoder(response.Body).Decode(&counted)).To(Succeed())
	g.Expect(counted.Most).To(Equal(1))
}

func TestTabsShareWhatTheyHaveSent(t *testing.T) {
	g := NewWithT(t)
	w := &watch{}
	versions := func(version string) map[types.NamespacedName]string {
		return map[types.NamespacedName]string{{Namespace: "shop", Name: "a"}: version}
	}
	first := w.share(versions("1"))
	g.Expect(reflect.ValueOf(w.share(versions("1"))).Pointer()).To(Equal(reflect.ValueOf(first).Pointer()))
	g.Expect(w.share(versions("2"))).To(Equal(versions("2")))
	g.Expect(first).To(Equal(versions("1")))
}
