package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"syscall"

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
	chosen    bool   // by the flag
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
	return &cluster{WithWatch: c, namespace: namespace, chosen: *p.config.Namespace != ""}, nil
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

// incident finds an Incident by its name, or by the beginning of it when there is only one; "incident/NAME" is
// understood as well, and so is the "NAMESPACE/NAME" that commands print.
func (c *cluster) incident(ctx context.Context, name string) (*v1alpha1.Incident, error) {
	namespace := c.namespace
	if before, rest, found := strings.Cut(name, "/"); found {
		kinds := []string{"incident", "incidents", "inc", "incident.tocsin.dev", "incidents.tocsin.dev"}
		switch {
		case slices.Contains(kinds, before):
		case c.chosen && before != namespace:
			return nil, fmt.Errorf("%q is not in the namespace %s", name, namespace)
		default:
			namespace = before
		}
		name = rest
	}
	if name == "" || namespace == "" || strings.Contains(name, "/") {
		return nil, errors.New("an incident is given as NAME or NAMESPACE/NAME")
	}
	incident := &v1alpha1.Incident{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, incident)
	if !apierrors.IsNotFound(err) {
		return incident, err
	}
	all, listErr := c.incidentNames(ctx, namespace)
	var names []string
	for _, one := range all {
		if strings.HasPrefix(one.Name, name) {
			names = append(names, one.Name)
		}
	}
	switch {
	case listErr != nil, len(names) == 0:
		return nil, err
	case len(names) > 1:
		return nil, fmt.Errorf("%q is the beginning of %d incidents: %s", name, len(names), summary(names))
	}
	return incident, c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: names[0]}, incident)
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
	var request *url.Error
	switch {
	case errors.As(err, &status):
	case errors.As(err, &request) && errors.Is(err, syscall.ECONNREFUSED):
		server, parseErr := url.Parse(request.URL)
		if parseErr != nil {
			break
		}
		return fmt.Sprintf("The connection to the server %s was refused - did you specify the right host or port?", server.Host)
	case errors.As(err, &request):
		return "Unable to connect to the server: " + payload.SanitizeLine(request.Err.Error())
	}
	if status == nil {
		// CEL says in which namespace of types it looked for a name, which is none.
		return "error: " + strings.ReplaceAll(payload.SanitizeLine(err.Error()), " (in container '')", "")
	}
	details := status.Status()
	text := fmt.Sprintf("Error from server (%s): %s", details.Reason, payload.SanitizeLine(err.Error()))
	if details.Reason == metav1.StatusReasonNotFound && (details.Details == nil || details.Details.Name == "") {
		text += "\nTocsin does not seem to be installed in this cluster: it does not serve " + v1alpha1.GroupVersion.String() + "."
	}
	return text
}
