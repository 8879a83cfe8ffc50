package cli

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// missingError is an error because a namespace or an integration does not exist: commands exit with exitMissing.
type missingError struct{ error }

func (e missingError) Unwrap() error { return e.error }

// verify finds out whether the namespace and the integrations exist that a filter names. Without it a mistyped name
// looks like one that has no incidents. What there is an incident of exists; where the caller may not look, stderr
// says so.
func (p *plugin) verify(ctx context.Context, c *cluster, f *filter, found []*v1alpha1.Incident) error {
	if !f.allNamespaces && len(found) == 0 {
		namespace := metav1.PartialObjectMetadata{}
		namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		err := c.Get(ctx, client.ObjectKey{Name: c.namespace}, &namespace)
		if err := p.verified("namespace "+c.namespace, err); err != nil {
			return err
		}
	}
	for _, name := range f.integrations {
		if slices.ContainsFunc(found, func(i *v1alpha1.Incident) bool { return i.Spec.IntegrationName == name }) {
			continue
		}
		if err := p.verified("integration "+name, c.integrationExists(ctx, f.namespace(c), name)); err != nil {
			return err
		}
	}
	return nil
}

// verified passes on an error that is not about the caller's rights.
func (p *plugin) verified(what string, err error) error {
	switch {
	case apierrors.IsForbidden(err):
		_, err = fmt.Fprintf(p.ErrOut, "Warning: cannot verify that the %s exists: you may not read it\n", what)
		return err
	case apierrors.IsNotFound(err):
		return missingError{err}
	}
	return err
}

// integrationExists returns a NotFound error when there is no integration of a name in a namespace, empty for all.
func (c *cluster) integrationExists(ctx context.Context, namespace, name string) error {
	kind := v1alpha1.GroupVersion.WithKind("WebhookIntegration")
	if namespace != "" {
		one := &metav1.PartialObjectMetadata{}
		one.SetGroupVersionKind(kind)
		return c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, one)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WebhookIntegrationList"))
	err := c.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: name}, client.Limit(1))
	if err == nil && len(list.Items) == 0 {
		err = apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: "webhookintegrations"}, name)
	}
	return err
}
