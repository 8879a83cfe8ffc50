// Package schemacheck detects CustomResourceDefinitions that are older than the program. The API server silently drops
// unknown fields: a manager that is rolled out before its CustomResourceDefinitions would answer 202 and lose data.
//
// The check needs no permissions beyond the manager's. For each kind it sends an object with every field of the Go
// type, as a dry run with strict field validation. One additional field, which is in no schema, makes the API server
// reject the request before admission; the rejection lists the unknown fields.
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
	// interval is the time between two checks: older CustomResourceDefinitions may be applied at any time.
	interval = time.Minute

	// retryInterval is the same after a check that failed or found unknown fields.
	retryInterval = time.Second

	// timeout bounds one request.
	timeout = 5 * time.Second

	// probe is a field that is in no schema.
	probe = "tocsinSchemaProbe"

	// maxFields bounds how many unknown fields the message names.
	maxFields = 5
)

// request is a write of a kind that the manager is authorized for.
type request struct {
	kind, resource string
	object         reflect.Type
	verb           string
	name           string // with the subresource, for an update
}

// requests has one request for each kind. The manager does not create WebhookIntegrations, but writes their status; the
// object need not exist.
var requests = []request{
	{"AlertEvent", "alertevents", reflect.TypeFor[v1alpha1.AlertEvent](), http.MethodPost, ""},
	{"Incident", "incidents", reflect.TypeFor[v1alpha1.Incident](), http.MethodPost, ""},
	{
		"WebhookIntegration", "webhookintegrations", reflect.TypeFor[v1alpha1.WebhookIntegration](), http.MethodPut,
		"tocsin-schema-probe",
	},
}

// Checker checks the CustomResourceDefinitions periodically.
type Checker struct {
	client    rest.Interface
	namespace string
	log       logr.Logger

	mu      sync.Mutex
	verdict error
}

// errUnchecked is the verdict before the first check.
var errUnchecked = errors.New("the CustomResourceDefinitions are not checked yet")

// New returns a checker. The manager must be authorized to create AlertEvents in the namespace, which need not exist.
func New(config *rest.Config, namespace string, log logr.Logger) (*Checker, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &v1alpha1.GroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	config.Timeout = timeout
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating the client of the schema check: %w", err)
	}
	return &Checker{client: client, namespace: namespace, log: log, verdict: errUnchecked}, nil
}

// Verdict returns the result of the last check: nil when all fields are known.
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

// Check checks once. The verdict remains if the API server is not available or denies all requests.
func (c *Checker) Check(ctx context.Context) {
	var problems []error
	denied := 0
	for _, r := range requests {
		unknown, err := c.unknownFields(ctx, r)
		switch {
		case apierrors.IsForbidden(err):
			denied++
		case err != nil && isAnswered(err):
			c.log.Info("Cannot check CustomResourceDefinition", "kind", r.kind, "reason", err.Error())
		case err != nil:
			return // the API server is not available
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
		c.log.Error(verdict, "Rejecting alerts: the API server would drop some of their fields")
	}
	c.verdict = verdict
}

// outdated returns the error for a CustomResourceDefinition that lacks fields.
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
		return nil, fmt.Errorf("%s is not an object", r.kind)
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

// unknownField matches a field in the API server's message of strict validation.
var unknownField = regexp.MustCompile(`unknown field "([^"]+)"`)

// parse returns the unknown fields that the rejection lists. Any other response is an error.
func parse(err error) ([]string, error) {
	if err == nil {
		return nil, errors.New("the API server accepted an unknown field")
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

// isAnswered reports whether the API server rejected the request for a lasting reason.
func isAnswered(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusUnauthorized && code != http.StatusTooManyRequests &&
		code != http.StatusNotFound
}
