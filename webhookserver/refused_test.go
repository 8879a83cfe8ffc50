package webhookserver

import (
	"context"
	"errors"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
)

// Whoever measures quiet hears of alerts that could not be stored, and of no others.
func TestRefusalsAreTold(t *testing.T) {
	sender := types.NamespacedName{Namespace: "team-a", Name: "prometheus"}
	unavailable := func(b *bench) {
		b.committer = committerFunc(func(context.Context, commit.Submission) (commit.Receipt, error) {
			return commit.Receipt{}, commit.ErrUnavailable
		})
	}
	for sentence, c := range map[string]struct {
		prepare func(*bench)
		target  string
		body    string
		status  int
		told    bool
	}{
		"stored: nothing is told":                 {func(*bench) {}, testPath, firing, http.StatusAccepted, false},
		"the API server is away: told":            {unavailable, testPath, firing, http.StatusServiceUnavailable, true},
		"the queue is full: told":                 {full, testPath, firing, http.StatusServiceUnavailable, true},
		"nobody knows whether it is stored: told": {unknown, testPath, firing, http.StatusServiceUnavailable, true},
		"the namespace may have no more Incidents: an alert of an open one is stored, so none was missed": {
			func(b *bench) { b.limitIncidents(4, "another") }, testPath, firing, http.StatusServiceUnavailable, false},
		"a quota rejects new Incidents: an alert of an open one is stored, so none was missed": {
			(*bench).blockIncidents, testPath, firing, http.StatusServiceUnavailable, false},
		"the CustomResourceDefinitions are older: told": {older, testPath, firing, http.StatusServiceUnavailable, true},
		"a dry run that fails: nothing is told":         {full, testPath + "?dryRun=true", firing, http.StatusServiceUnavailable, false},
		"a payload that is no JSON: nothing is told":    {func(*bench) {}, testPath, "{", http.StatusBadRequest, false},
		"a token that nobody has: nothing is told":      {unavailable, eventsPath + "/unknown", firing, http.StatusUnauthorized, false},
		"an integration that is suspended: not told":    {suspended, testPath, firing, http.StatusForbidden, false},
		"an alert that the API server rejects: no word": {rejected, testPath, firing, http.StatusUnprocessableEntity, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			health := &recordedHealth{Health: b.options.Health}
			b.options.Health = health
			c.prepare(b)
			g.Expect(b.post(c.target, c.body).StatusCode).To(Equal(c.status))
			if !c.told {
				g.Expect(health.missed).To(BeEmpty())
				g.Expect(b.reports.unavailable).To(BeEmpty())
				return
			}
			g.Expect(health.missed).To(Equal([]types.NamespacedName{sender}))
			g.Expect(b.reports.unavailable).To(Equal(health.missed), "the other replicas hear of it through the status")
		})
	}
}

func full(b *bench) {
	b.limit(capacity.Limits{Events: 1, Share: 1})
	b.options.Capacity.SetEvent(&v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a"}}, false)
}

func older(b *bench) { b.options.Schemas = olderSchemas{} }

// olderSchemas lack a field.
type olderSchemas struct{}

func (olderSchemas) Verdict() error { return errors.New("a field is missing") }

// recordedHealth remembers the integrations of which it was told.
type recordedHealth struct {
	Health
	missed []types.NamespacedName
}

func (h *recordedHealth) Missed(integration types.NamespacedName) {
	h.missed = append(h.missed, integration)
}

func suspended(b *bench) {
	w := integration("team-a", "prometheus")
	w.Spec.Suspend = true
	b.tokens.set(w)
}

func rejected(b *bench) {
	b.committer = committerFunc(func(context.Context, commit.Submission) (commit.Receipt, error) {
		return commit.Receipt{}, &commit.InvalidError{Message: "no"}
	})
}

func unknown(b *bench) {
	b.committer = committerFunc(func(context.Context, commit.Submission) (commit.Receipt, error) {
		return commit.Receipt{}, commit.ErrOutcomeUnknown
	})
}
