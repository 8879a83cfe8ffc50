package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/buildinfo"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// fieldManager owns the fields that the plugin writes.
const fieldManager = client.FieldOwner("kubectl-tocsin")

// cluster is the API server as the user sees it.
type cluster struct {
	client.WithWatch
	namespace string // of the flag or the kubeconfig's context
}

// cluster connects to the cluster of the flags and the kubeconfig. Nothing is sent yet.
func (p *plugin) cluster() (*cluster, error) {
	config, err := p.config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.UserAgent = "kubectl-tocsin/" + buildinfo.Read().Version
	config.QPS = -1 // the API server limits requests itself
	namespace, _, err := p.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, err
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: newMapper()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return &cluster{WithWatch: c, namespace: namespace}, nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	err := errors.Join(corev1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
	if err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	return scheme, nil
}

// newMapper knows the resources that the plugin uses, so that no command begins with asking the API server
// for all that there are.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"WebhookIntegration", "AlertEvent", "Incident"} {
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	for _, kind := range []string{"Service", "Pod"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	return mapper
}

// incident finds an Incident by its name, or by the beginning of it when there is only one; "incident/NAME"
// is understood as well.
func (c *cluster) incident(ctx context.Context, name string) (*v1alpha1.Incident, error) {
	if kind, rest, found := strings.Cut(name, "/"); found {
		if !slices.Contains([]string{"incident", "incidents", "inc", "incident.tocsin.dev", "incidents.tocsin.dev"}, kind) {
			return nil, fmt.Errorf("%q is not an incident", name)
		}
		name = rest
	}
	if name == "" {
		return nil, errors.New("an incident needs a name")
	}
	incident := &v1alpha1.Incident{}
	err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, incident)
	if !apierrors.IsNotFound(err) {
		return incident, err
	}
	names, listErr := c.incidentNames(ctx, name)
	switch {
	case listErr != nil, len(names) == 0:
		return nil, err
	case len(names) > 1:
		return nil, fmt.Errorf("%q is the beginning of %d incidents: %s", name, len(names), summary(names))
	}
	return incident, c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: names[0]}, incident)
}

// incidentNames are those in the namespace that begin like this.
func (c *cluster) incidentNames(ctx context.Context, prefix string) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("IncidentList"))
	if err := c.List(ctx, list, client.InNamespace(c.namespace)); err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, prefix) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, nil
}

// summary lists a few of many.
func summary(names []string) string {
	const few = 5
	if len(names) > few {
		return strings.Join(names[:few], ", ") + " …"
	}
	return strings.Join(names, ", ")
}

// explainError says an error as kubectl does, with a hint where it is known to help.
func explainError(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "error: " + payload.SanitizeLine(err.Error())
	}
	details := status.Status()
	text := fmt.Sprintf("Error from server (%s): %s", details.Reason, payload.SanitizeLine(err.Error()))
	if details.Reason == metav1.StatusReasonNotFound && (details.Details == nil || details.Details.Name == "") {
		text += "\nTocsin does not seem to be installed in this cluster: it does not serve " + v1alpha1.GroupVersion.String() + "."
	}
	return text
}
