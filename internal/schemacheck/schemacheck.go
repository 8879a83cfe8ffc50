// Package schemacheck detects CustomResourceDefinitions that are older than the program. The API server silently drops
// unknown fields: a manager that is rolled out before its CustomResourceDefinitions would answer 202 and lose data.
//
// The check compares the schemas that the API server publishes as OpenAPI with those that the program was built with. Every
// authenticated client may read them, by the ClusterRole system:discovery.
package schemacheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/config/crd"
)

const (
	// interval is the time between two checks: older CustomResourceDefinitions may be applied at any time.
	interval = time.Minute

	// retryInterval is the same after a check that failed or found missing fields.
	retryInterval = time.Second

	// timeout bounds one request.
	timeout = 5 * time.Second

	// document is the OpenAPI document of Tocsin's resources, and component what begins the name of a kind's schema in it.
	document  = "/openapi/v3/apis/tocsin.dev/v1alpha1"
	component = "dev.tocsin.v1alpha1."

	// maxFields bounds how many missing fields the message names.
	maxFields = 5
)

// Checker checks the CustomResourceDefinitions periodically.
type Checker struct {
	client rest.Interface
	wanted []definition
	log    logr.Logger

	mu      sync.Mutex
	verdict error
}

// definition is what the check needs of a CustomResourceDefinition.
type definition struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Names struct {
			Kind string `json:"kind"`
		} `json:"names"`
		Versions []struct {
			Schema struct {
				OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// errUnchecked is the verdict before the first check.
var errUnchecked = errors.New("the CustomResourceDefinitions are not checked yet")

// New returns a checker.
func New(config *rest.Config, log logr.Logger) (*Checker, error) {
	c := &Checker{log: log, verdict: errUnchecked}
	for _, text := range [][]byte{crd.AlertEvent, crd.Incident, crd.WebhookIntegration} {
		var wanted definition
		if err := yaml.Unmarshal(text, &wanted); err != nil {
			return nil, fmt.Errorf("reading a CustomResourceDefinition: %w", err)
		}
		c.wanted = append(c.wanted, wanted)
	}
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.Timeout = timeout
	var err error
	if c.client, err = rest.UnversionedRESTClientFor(config); err != nil {
		return nil, fmt.Errorf("creating the client of the schema check: %w", err)
	}
	return c, nil
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

// Check checks once. The verdict remains if the API server is not available, or does not publish all kinds: one that has just
// started denies everything, and publishes one kind after the other.
func (c *Checker) Check(ctx context.Context) {
	installed, err := c.installed(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		if errors.Is(c.verdict, errUnchecked) && apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
			c.verdict = fmt.Errorf("%w: %w", errUnchecked, err)
		}
		return
	}
	var problems []error
	for i := range c.wanted {
		wanted := &c.wanted[i]
		schema := installed[component+wanted.Spec.Names.Kind]
		if schema == nil {
			return
		}
		if paths := missing(schema, wanted.Spec.Versions[0].Schema.OpenAPIV3Schema, ""); len(paths) > 0 {
			problems = append(problems, outdated(wanted.Metadata.Name, paths))
		}
	}
	verdict := errors.Join(problems...)
	if verdict != nil && (c.verdict == nil || c.verdict.Error() != verdict.Error()) {
		c.log.Error(verdict, "Rejecting alerts: the API server would drop some of their fields")
	}
	c.verdict = verdict
}

// installed returns the schemas that the API server publishes, by the names of their components.
func (c *Checker) installed(ctx context.Context) (map[string]map[string]any, error) {
	text, err := c.client.Get().AbsPath(document).SetHeader("Accept", "application/json").MaxRetries(0).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var published struct {
		Components struct {
			Schemas map[string]map[string]any `json:"schemas"`
		} `json:"components"`
	}
	err = json.Unmarshal(text, &published)
	return published.Components.Schemas, err
}

// missing returns the paths of the properties that an installed schema lacks, in order. path is that of the schema.
func missing(installed, wanted map[string]any, path string) []string {
	var paths []string
	descend := func(installed, wanted any, path string) {
		inner, _ := installed.(map[string]any)
		if schema, ok := wanted.(map[string]any); ok {
			paths = append(paths, missing(inner, schema, path)...)
		}
	}
	descend(installed["items"], wanted["items"], path+"[]")
	descend(installed["additionalProperties"], wanted["additionalProperties"], path+".*")
	known, _ := installed["properties"].(map[string]any)
	properties, _ := wanted["properties"].(map[string]any)
	for name, property := range properties {
		at := strings.TrimPrefix(path+"."+name, ".")
		if _, found := known[name]; found {
			descend(known[name], property, at)
		} else {
			paths = append(paths, at)
		}
	}
	slices.Sort(paths)
	return paths
}

// outdated returns the error for a CustomResourceDefinition that lacks fields.
func outdated(name string, missing []string) error {
	more := ""
	if len(missing) > maxFields {
		more = fmt.Sprintf(" and %d more", len(missing)-maxFields)
		missing = missing[:maxFields]
	}
	return fmt.Errorf("the CustomResourceDefinition %s is older than this manager and lacks %s%s: apply config/crd",
		name, strings.Join(missing, ", "), more)
}
