// Package schemacheck finds out whether the installed CustomResourceDefinitions are older than the program. The API
// server drops fields that it does not know, and says nothing: a manager that is rolled out before its
// CustomResourceDefinitions would answer 202 and lose part of what it stores.
//
// The check needs no permission beyond those that the manager has. For each kind it sends an object with every field of
// the Go type, in a dry run with strict field validation. One more field, which no schema has, makes the API server
// refuse the request before it comes to admission or to anything else; the refusal lists the unknown fields.
package schemacheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const (
	// interval is the time between two checks: somebody may apply older CustomResourceDefinitions at any time.
	interval = time.Minute

	// retryInterval is the same while the last check failed or found something.
	retryInterval = time.Second

	// timeout bounds one request.
	timeout = 5 * time.Second

	// probe is the field that no schema has.
	probe = "tocsinSchemaProbe"

	// maxFields is how many unknown fields the message names.
	maxFields = 5
)

// request is a way to have an object of a kind decoded that the manager may use.
type request struct {
	kind, resource string
	object         reflect.Type
	verb           string
	name           string // with the subresource, for an update
}

// requests are for all kinds. The manager creates no WebhookIntegrations, but writes their status; the object need not
// exist.
var requests = []request{
	{"AlertEvent", "alertevents", reflect.TypeFor[v1alpha1.AlertEvent](), http.MethodPost, ""},
	{"Incident", "incidents", reflect.TypeFor[v1alpha1.Incident](), http.MethodPost, ""},
	{
		"WebhookIntegration", "webhookintegrations", reflect.TypeFor[v1alpha1.WebhookIntegration](), http.MethodPut,
		"tocsin-schema-probe",
	},
}

// Checker checks the CustomResourceDefinitions again and again.
type Checker struct {
	client    rest.Interface
	namespace string
	log       logr.Logger

	mu      sync.Mutex
	verdict error
}

// errUnchecked is the verdict before the first check.
var errUnchecked = errors.New("the CustomResourceDefinitions are not checked yet")

// New makes a checker that uses a namespace in which the manager may create AlertEvents; it need not exist.
func New(config *rest.Config, namespace string, log logr.Logger) (*Checker, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &v1alpha1.GroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	config.Timeout = timeout
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of the schema check: %w", err)
	}
	return &Checker{client: client, namespace: namespace, log: log, verdict: errUnchecked}, nil
}

// Verdict returns what the last check found, nil when all fields are known.
func (c *Checker) Verdict() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verdict
}

// Start checks until ctx ends.
func (c *Checker) Start(ctx context.Context) error {
	for {
		c.Check(ctx)
		wait := interval
		if c.Verdict() != nil {
			wait = retryInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica checks.
func (c *Checker) NeedLeaderElection() bool { return false }

// Check checks once. What cannot be found out leaves the verdict as it was, unless there was none.
func (c *Checker) Check(ctx context.Context) {
	var problems []error
	denied := 0
	for _, r := range requests {
		unknown, err := c.unknownFields(ctx, r)
		switch {
		case apierrors.IsForbidden(err):
			denied++
		case err != nil && isAnswered(err):
			c.log.Info("Could not check the CustomResourceDefinition", "kind", r.kind, "reason", err.Error())
		case err != nil:
			return // the API server is away
		case len(unknown) > 0:
			problems = append(problems, outdated(r, unknown))
		}
	}
	if denied == len(requests) {
		return // an API server that has just started denies everything
	}
	verdict := errors.Join(problems...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if verdict != nil && (c.verdict == nil || c.verdict.Error() != verdict.Error()) {
		c.log.Error(verdict, "Refusing alerts: what they consist of would not be stored whole")
	}
	c.verdict = verdict
}

// outdated is what to tell about a CustomResourceDefinition that lacks fields.
func outdated(r request, unknown []string) error {
	more := ""
	if len(unknown) > maxFields {
		more = fmt.Sprintf(" and %d more", len(unknown)-maxFields)
		unknown = unknown[:maxFields]
	}
	return fmt.Errorf("the CustomResourceDefinition %s.%s is older than this manager and lacks %s%s: apply config/crd",
		r.resource, v1alpha1.GroupVersion.Group, strings.Join(unknown, ", "), more)
}

// unknownFields returns the fields of a kind that the API server does not know.
func (c *Checker) unknownFields(ctx context.Context, r request) ([]string, error) {
	object, ok := every(r.object).(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s is no object", r.kind)
	}
	object["apiVersion"], object["kind"], object[probe] = v1alpha1.GroupVersion.String(), r.kind, ""
	metadata := map[string]any{"namespace": c.namespace}
	object["metadata"] = metadata
	call := c.client.Verb(r.verb).Namespace(c.namespace).Resource(r.resource)
	if r.name == "" {
		metadata["generateName"] = "tocsin-schema-probe-"
	} else {
		metadata["name"] = r.name
		call = call.Name(r.name).SubResource("status")
	}
	body, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding an object of %s: %w", r.kind, err)
	}
	err = call.Param("dryRun", metav1.DryRunAll).Param("fieldValidation", metav1.FieldValidationStrict).
		SetHeader("Content-Type", runtime.ContentTypeJSON).MaxRetries(0).Body(body).Do(ctx).Error()
	return parse(err)
}

// unknownField is how the API server names a field in strict validation.
var unknownField = regexp.MustCompile(`unknown field "([^"]+)"`)

// parse takes the unknown fields from the refusal. Any other answer is an error.
func parse(err error) ([]string, error) {
	if err == nil {
		return nil, errors.New("the API server took an unknown field")
	}
	unknown := map[string]bool{}
	if apierrors.IsBadRequest(err) {
		for _, match := range unknownField.FindAllStringSubmatch(err.Error(), -1) {
			unknown[match[1]] = true
		}
	}
	if !unknown[probe] {
		return nil, err
	}
	delete(unknown, probe)
	return slices.Sorted(maps.Keys(unknown)), nil
}

// isAnswered reports whether the API server gave an answer that will not change soon.
func isAnswered(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusUnauthorized && code != http.StatusTooManyRequests &&
		code != http.StatusNotFound
}
