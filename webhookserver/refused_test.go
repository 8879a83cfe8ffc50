package webhookserver

import (
	"context"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

// Whoever measures silence hears of alerts that could not be stored, and of no others.
func TestRefusalsAreTold(t *testing.T) {
	sender := types.NamespacedName{Namespace: "team-a", Name: "prometheus"}
	unavailable := func(b *bench) {
		b.committer = committerFunc(func(context.Context, Submission) (Receipt, error) {
			return Receipt{}, ErrUnavailable
		})
	}
	for sentence, c := range map[string]struct {
		prepare func(*bench)
		target  string
		body    string
		status  int
		told    []types.NamespacedName
	}{
		"stored: nothing is told":                       {func(*bench) {}, testPath, firing, http.StatusAccepted, nil},
		"the API server is away: told":                  {unavailable, testPath, firing, http.StatusServiceUnavailable, []types.NamespacedName{sender}},
		"the queue is full: told":                       {func(b *bench) { b.maxPendingEvents = 0 }, testPath, firing, http.StatusServiceUnavailable, []types.NamespacedName{sender}},
		"nobody knows whether it is stored: told":       {unknown, testPath, firing, http.StatusServiceUnavailable, []types.NamespacedName{sender}},
		"a dry run that fails: nothing is told":         {func(b *bench) { b.maxPendingEvents = 0 }, testPath + "?dryRun=true", firing, http.StatusServiceUnavailable, nil},
		"a payload that is no JSON: nothing is told":    {func(*bench) {}, testPath, "{", http.StatusBadRequest, nil},
		"a token that nobody has: nothing is told":      {unavailable, eventsPath + "/unknown", firing, http.StatusUnauthorized, nil},
		"an integration that is suspended: not told":    {suspended, testPath, firing, http.StatusForbidden, nil},
		"an alert that the API server rejects: no word": {rejected, testPath, firing, http.StatusUnprocessableEntity, nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			var told []types.NamespacedName
			b.refused = func(integration types.NamespacedName) { told = append(told, integration) }
			c.prepare(b)
			g.Expect(b.post(c.target, c.body).StatusCode).To(Equal(c.status))
			g.Expect(told).To(Equal(c.told))
		})
	}
}

func suspended(b *bench) {
	w := integration("team-a", "prometheus", testToken)
	w.Spec.Suspend = true
	b.tokens.set(w)
}

func rejected(b *bench) {
	b.committer = committerFunc(func(context.Context, Submission) (Receipt, error) {
		return Receipt{}, &RejectedError{Message: "no"}
	})
}

func unknown(b *bench) {
	b.committer = committerFunc(func(context.Context, Submission) (Receipt, error) {
		return Receipt{}, ErrOutcomeUnknown
	})
}
