// Package schemacheck detects CustomResourceDefinitions that are older than the program. The API server silently drops
// unknown fields: a manager that is rolled out before its CustomResourceDefinitions would answer 202 and lose data.
//
// The check compares the schemas that the API server publishes as OpenAPI with those that the program was built with. Every
// authenticated client may read them, by the ClusterRole system:discovery.
package schemacheck

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

	verdict atomic.Pointer[error]
	judged  [sha256.Size]byte // the hash of the document to which the verdict belongs; only Start's goroutine uses it
}

// definition is what the check needs of a CustomResourceDefinition.
type definition struct {
	Metadata metav1.ObjectMeta
	Spec     struct {
		Names    struct{ Kind string }
		Versions []struct {
			Schema struct{ OpenAPIV3Schema map[string]any }
		}
	}
}

var errUnchecked = errors.New("the CustomResourceDefinitions are not checked yet")

// wantedDefinitions are those of this version. They never change, and must not be modified.
var wantedDefinitions = sync.OnceValues(func() (all []definition, err error) {
	for _, text := range [][]byte{
		crd.AlertEvent, crd.Heartbeat, crd.Incident, crd.IncidentSummary, crd.MaintenanceWindow, crd.WebhookIntegration,
	} {
		var wanted definition
		if err := yaml.Unmarshal(text, &wanted); err != nil {
			return nil, fmt.Errorf("reading a CustomResourceDefinition: %w", err)
		}
		all = append(all, wanted)
	}
	return all, nil
})

// New returns a checker.
func New(config *rest.Config, log logr.Logger) (*Checker, error) {
	wanted, err := wantedDefinitions()
	if err != nil {
		return nil, err
	}
	c := &Checker{log: log, wanted: wanted}
	c.verdict.Store(&errUnchecked)
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.Timeout = timeout
	if c.client, err = rest.UnversionedRESTClientFor(config); err != nil {
		return nil, fmt.Errorf("creating the client of the schema check: %w", err)
	}
	return c, nil
}

// Verdict returns the result of the last check: nil when all fields are known.
func (c *Checker) Verdict() error { return *c.verdict.Load() }

// Start checks until ctx ends.
func (c *Checker) Start(ctx context.Context) error {
	for {
		c.check(ctx)
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

// check checks once. The verdict remains if the API server is not available, or does not publish all kinds: one that has just
// started denies everything, and publishes one kind after the other.
func (c *Checker) check(ctx context.Context) {
	text, err := c.client.Get().AbsPath(document).SetHeader("Accept", "application/json").MaxRetries(0).DoRaw(ctx)
	last, hash := c.Verdict(), sha256.Sum256(text)
	var installed map[string]any
	switch {
	case err == nil && hash == c.judged:
		return
	case err == nil:
		installed, err = schemasOf(text)
	}
	if err != nil {
		if errors.Is(last, errUnchecked) && apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
			c.verdict.Store(new(fmt.Errorf("%w: %w", errUnchecked, err)))
		}
		return
	}
	var verdict error
	for i := range c.wanted {
		wanted := &c.wanted[i]
		schema := installed[component+wanted.Spec.Names.Kind]
		if schema == nil {
			if errors.Is(last, errUnchecked) {
				c.verdict.Store(new(fmt.Errorf("%w: the API server publishes no %s", errUnchecked, wanted.Spec.Names.Kind)))
			}
			return
		}
		if paths := missing(schema, wanted.Spec.Versions[0].Schema.OpenAPIV3Schema, ""); len(paths) > 0 {
			verdict = errors.Join(verdict, outdated(wanted.Metadata.Name, paths))
		}
	}
	if verdict != nil && (last == nil || last.Error() != verdict.Error()) {
		c.log.Error(verdict, "Rejecting alerts: the API server would drop some of their fields")
	}
	c.verdict.Store(&verdict)
	c.judged = hash
}

func schemasOf(text []byte) (map[string]any, error) {
	var published struct {
		Components struct{ Schemas map[string]any }
	}
	err := json.Unmarshal(text, &published)
	return published.Components.Schemas, err
}

// missing returns the paths of the properties that an installed schema lacks, in order. path is that of the schema.
func missing(installed, wanted any, path string) []string {
	schema, ok := wanted.(map[string]any)
	if !ok {
		return nil
	}
	inner, _ := installed.(map[string]any)
	paths := slices.Concat(missing(inner["items"], schema["items"], path+"[]"),
		missing(inner["additionalProperties"], schema["additionalProperties"], path+".*"))
	known, _ := inner["properties"].(map[string]any)
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		at := strings.TrimPrefix(path+"."+name, ".")
		if found, ok := known[name]; ok {
			paths = append(paths, missing(found, property, at)...)
		} else {
			paths = append(paths, at)
		}
	}
	slices.Sort(paths)
	return paths
}

func outdated(name string, missing []string) error {
	more := ""
	if len(missing) > maxFields {
		more = fmt.Sprintf(" and %d more", len(missing)-maxFields)
		missing = missing[:maxFields]
	}
	return fmt.Errorf("the CustomResourceDefinition %s is older than this manager and lacks %s%s: apply config/crd",
		name, strings.Join(missing, ", "), more)
}
