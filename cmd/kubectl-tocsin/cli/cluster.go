package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/buildinfo"
	"github.com/tocsin-dev/tocsin/internal/live"
)

type cluster struct {
	client.WithWatch
	config    *rest.Config
	namespace string // of --namespace or of the kubeconfig's context
	explicit  bool   // --namespace is set
}

// withCluster returns a RunE that calls run with the cluster and the arguments.
func (p *plugin) withCluster(run func(context.Context, *cluster, []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		c, err := p.cluster()
		if err != nil {
			return err
		}
		return run(command.Context(), c, args)
	}
}

// cluster returns a client for the cluster of the flags and the kubeconfig. It sends no request.
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
	c, err := client.NewWithWatch(config, client.Options{Scheme: newScheme(), Mapper: newMapper()})
	if err != nil {
		return nil, fmt.Errorf("creating the client: %w", err)
	}
	return &cluster{WithWatch: c, config: config, namespace: namespace, explicit: *p.config.Namespace != ""}, nil
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(errors.Join(
		corev1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	return scheme
}

// newMapper returns a static mapper of the kinds that the plugin uses, which saves discovery.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind, scope := range map[schema.GroupVersionKind]meta.RESTScope{
		v1alpha1.GroupVersion.WithKind("WebhookIntegration"):              meta.RESTScopeNamespace,
		v1alpha1.GroupVersion.WithKind("AlertEvent"):                      meta.RESTScopeNamespace,
		v1alpha1.GroupVersion.WithKind("Heartbeat"):                       meta.RESTScopeNamespace,
		v1alpha1.GroupVersion.WithKind("Incident"):                        meta.RESTScopeNamespace,
		v1alpha1.GroupVersion.WithKind("MaintenanceWindow"):               meta.RESTScopeNamespace,
		v1alpha1.GroupVersion.WithKind("RequestCapture"):                  meta.RESTScopeNamespace,
		corev1.SchemeGroupVersion.WithKind("Service"):                     meta.RESTScopeNamespace,
		corev1.SchemeGroupVersion.WithKind("Pod"):                         meta.RESTScopeNamespace,
		corev1.SchemeGroupVersion.WithKind("Namespace"):                   meta.RESTScopeRoot,
		authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"): meta.RESTScopeRoot,
	} {
		mapper.Add(kind, scope)
	}
	return mapper
}

// Before the name of an Incident, kinds can only be its kind; shortKinds can be its namespace as well.
var (
	kinds      = []string{"incident.tocsin.dev", "incidents.tocsin.dev"}
	shortKinds = []string{"incident", "incidents", "inc"}
)

// incident returns the Incident with a name, an unambiguous prefix of it, or an abbreviation of a table. The name may be preceded
// by the kind ("incident/NAME") or the namespace ("NAMESPACE/NAME").
func (c *cluster) incident(ctx context.Context, name string) (*v1alpha1.Incident, error) {
	before, rest, found := strings.Cut(name, "/")
	switch {
	case !found:
		return c.incidentIn(ctx, c.namespace, name)
	case slices.Contains(kinds, before), slices.Contains(shortKinds, before) && c.explicit:
		return c.incidentIn(ctx, c.namespace, rest)
	case slices.Contains(shortKinds, before):
		return c.incidentOfEither(ctx, before, rest)
	case c.explicit && before != c.namespace:
		return nil, fmt.Errorf("%q is not in namespace %q", name, c.namespace)
	}
	return c.incidentIn(ctx, before, rest)
}

// incidentOfEither returns the Incident with a name after a word that is its kind or a namespace. An Incident of an integration
// and a key has the same name in all namespaces, so there may be two.
func (c *cluster) incidentOfEither(ctx context.Context, word, name string) (*v1alpha1.Incident, error) {
	own, err := c.incidentIn(ctx, c.namespace, name)
	if word == c.namespace {
		return own, err
	}
	other, otherErr := c.incidentIn(ctx, word, name)
	switch {
	case apierrors.IsNotFound(otherErr), apierrors.IsForbidden(otherErr): // who may not read it does not mean it
		return own, err
	case otherErr != nil, apierrors.IsNotFound(err):
		return other, otherErr
	case err != nil:
		return nil, err
	}
	return nil, fmt.Errorf("%q is in namespace %q and, if %q is a kind, in namespace %q: specify --namespace",
		name, word, word, c.namespace)
}

// incidentIn returns the Incident of a namespace with a name, an unambiguous prefix of it, or an abbreviation of a table.
func (c *cluster) incidentIn(ctx context.Context, namespace, name string) (*v1alpha1.Incident, error) {
	if name == "" || namespace == "" || strings.Contains(name, "/") {
		return nil, errors.New("specify an incident as NAME or NAMESPACE/NAME")
	}
	incident := &v1alpha1.Incident{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, incident)
	if err == nil || !apierrors.IsNotFound(err) && !strings.Contains(name, ellipsis) {
		return incident, err
	}
	names, listErr := c.names(ctx, v1alpha1.GroupVersion.WithKind("IncidentList"), client.InNamespace(namespace))
	names = slices.DeleteFunc(names, func(other string) bool { return !abbreviates(name, other) })
	switch {
	case listErr != nil, len(names) == 0:
		return nil, inNamespace(err, namespace)
	case len(names) > 1:
		const most = 5
		list := strings.Join(names[:min(len(names), most)], ", ")
		if len(names) > most {
			list += " …"
		}
		return nil, fmt.Errorf("%q stands for %d incidents: %s", name, len(names), list)
	}
	return incident, c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: names[0]}, incident)
}

// nameOf returns the name of an Incident, after its namespace if that is not the one of the cluster.
func (c *cluster) nameOf(incident *v1alpha1.Incident) string {
	if incident.Namespace == c.namespace {
		return incident.Name
	}
	return incident.Namespace + "/" + incident.Name
}

// resultNameOf returns the name of an Incident as kubectl prints it, or with its namespace if that is another one.
func (c *cluster) resultNameOf(incident *v1alpha1.Incident) string {
	if incident.Namespace == c.namespace {
		return "incident.tocsin.dev/" + incident.Name
	}
	return c.nameOf(incident)
}

// abbreviates reports whether a short name stands for a name: as its prefix, or with an ellipsis for any part of it.
func abbreviates(short, name string) bool {
	begin, end, found := strings.Cut(short, ellipsis)
	return strings.HasPrefix(name, begin) && (!found || strings.Contains(name[len(begin):], end))
}

// inNamespace adds to the error about an object that does not exist where it was looked for; empty if in all namespaces.
func inNamespace(err error, namespace string) error {
	if apierrors.IsNotFound(err) && namespace != "" {
		return fmt.Errorf("%w in namespace %s", err, namespace)
	}
	return err
}

func (c *cluster) integration(ctx context.Context, name string) (*v1alpha1.WebhookIntegration, error) {
	integration := &v1alpha1.WebhookIntegration{}
	return integration, inNamespace(c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, integration), c.namespace)
}

// names lists the names of a kind's objects.
func (c *cluster) names(
	ctx context.Context, list schema.GroupVersionKind, options ...client.ListOption,
) (names []string, err error) {
	objects := &metav1.PartialObjectMetadataList{}
	objects.SetGroupVersionKind(list)
	for page, err := range live.Pages(ctx, c, objects, append(options, client.Limit(listChunk))...) {
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			names = append(names, page.Items[i].Name)
		}
	}
	return names, nil
}

// missingError reports a namespace or an integration that does not exist. Commands exit with exitUnknown.
type missingError struct{ error }

func (e missingError) Unwrap() error { return e.error }

// verify returns a missingError if the namespace or an integration of a filter does not exist. Without this check, a
// mistyped name looks like one without incidents. A namespace or integration with an Incident in found exists. If the
// user has no permission to verify, verify prints a warning.
func (p *plugin) verify(ctx context.Context, c *cluster, f *filter, found []*v1alpha1.Incident) error {
	verified := func(object string, err error) error {
		switch {
		case apierrors.IsForbidden(err):
			p.notef("Warning: cannot verify that %s exists: permission denied", object)
			return nil
		case apierrors.IsNotFound(err):
			return missingError{err}
		}
		return err
	}
	if !f.allNamespaces && len(found) == 0 {
		err := c.Get(ctx, client.ObjectKey{Name: c.namespace}, &corev1.Namespace{})
		if err := verified("namespace "+c.namespace, err); err != nil {
			return err
		}
	}
	for _, name := range f.Integrations {
		if slices.ContainsFunc(found, func(i *v1alpha1.Incident) bool { return i.Spec.IntegrationName == name }) {
			continue
		}
		names, err := c.names(ctx, v1alpha1.GroupVersion.WithKind("WebhookIntegrationList"),
			client.InNamespace(f.namespace(c)), client.MatchingFields{metav1.ObjectNameField: name})
		if err == nil && len(names) == 0 {
			resource := v1alpha1.GroupVersion.WithResource("webhookintegrations").GroupResource()
			err = inNamespace(apierrors.NewNotFound(resource, name), f.namespace(c))
		}
		if err := verified("integration "+name, err); err != nil {
			return err
		}
	}
	return nil
}

// flagMessages replaces messages of cobra and pflag by sentences.
var flagMessages = []struct {
	pattern  *regexp.Regexp
	sentence string
}{
	{regexp.MustCompile(`^if any flags in the group .* are set none of the others can be; \[(\S+) (.*)\] were all set$`),
		"--$1 and --$2 cannot be used together"},
	{regexp.MustCompile(`^invalid argument ".*" for "(?:-\w, )?(--[\w-]+)" flag: (must be .*)`), "$1 $2"},
	{regexp.MustCompile(`^invalid argument (".*") for "(?:-\w, )?(--[\w-]+)" flag: (?:strconv\.\w+: parsing ".*": |time: )?`),
		"invalid value $1 for $2: "},
	{regexp.MustCompile(`^flag needs an argument: (?:'\w' in )?(-\S+)$`), "$1 needs a value"},
}

// errorMessage formats an error as kubectl does, with a hint if Tocsin is not installed.
func errorMessage(err error) string {
	text := safe(err.Error())
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		details := status.Status()
		text = fmt.Sprintf("Error from server (%s): %s", details.Reason, text)
		if details.Reason == metav1.StatusReasonNotFound && (details.Details == nil || details.Details.Name == "") {
			text += "\nTocsin does not seem to be installed in this cluster: the API server does not serve " +
				v1alpha1.GroupVersion.String() + "."
		}
		return text
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		server, parseErr := url.Parse(request.URL)
		if errors.Is(err, syscall.ECONNREFUSED) && parseErr == nil {
			return fmt.Sprintf("The connection to the server %s was refused - did you specify the right host or port?", server.Host)
		}
		return "Unable to connect to the server: " + safe(request.Err.Error())
	}
	for _, message := range flagMessages {
		text = message.pattern.ReplaceAllString(text, message.sentence)
	}
	return "error: " + text
}
