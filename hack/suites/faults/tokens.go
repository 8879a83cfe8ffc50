package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// takeTokens has each tenant list the hash of the other one's token, and deletes the integrations that own them while
// no manager runs. One claim was refused before that; the other one no manager has seen, but that token has a tag.
// Until the owners are back, no token may be accepted.
func takeTokens(ctx context.Context, r *run) error {
	refused, unseen := r.thief(0, 1), r.thief(1, 0)
	if err := r.admin.Create(ctx, refused); err != nil {
		return err
	}
	_ = testenv.AwaitThat(ctx, 5*time.Second, "the claim is not refused", func(ctx context.Context) bool {
		return r.admin.Get(ctx, client.ObjectKeyFromObject(refused), refused) == nil && len(refused.Status.Tokens) > 0
	})
	for _, replica := range r.replicas {
		replica.hold(true)
		replica.kill()
	}
	for _, t := range r.tenants {
		owner := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: integrationName}}
		if err := r.admin.Delete(ctx, owner); err != nil {
			return err
		}
	}
	if err := r.admin.Create(ctx, unseen); err != nil {
		return err
	}
	for _, replica := range r.replicas {
		replica.hold(false)
	}
	if err := r.waitReady(ctx); err != nil {
		return err
	}
	pause(ctx, 4*time.Second)
	served, err := r.servedTokens()
	if err != nil {
		return err
	}
	r.note("%d of %d tokens taken over", served, len(r.tenants))
	for _, t := range r.tenants {
		if err := r.newIntegration(ctx, t); err != nil {
			return fmt.Errorf("making the owner again: %w", err)
		}
	}
	return nil
}

// servedTokens counts the tenants' tokens that are accepted.
func (r *run) servedTokens() (served int, err error) {
	for n := range r.tenants {
		a, err := r.post(n, r.tenants[n].token, strings.NewReader(`{"title":"x"}`), nil)
		if err != nil {
			return 0, err
		}
		if a.code != http.StatusUnauthorized {
			served++
		}
	}
	return served, nil
}

// thief is an integration of another tenant that lists the hash of a tenant's token.
func (r *run) thief(victim, tenant int) *v1alpha1.WebhookIntegration {
	return &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.tenants[tenant].namespace, Name: "thief"},
		Spec: v1alpha1.WebhookIntegrationSpec{Tokens: []v1alpha1.Token{
			{Name: "stolen", SHA256: v1alpha1.TokenHash(r.tenants[victim].token)},
		}},
	}
}
