package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

// scaleSite is a cluster that is filled with copies of objects that a manager wrote.
type scaleSite struct {
	*cluster
	load      tenant // takes the load
	namespace string // has the copies
	plugin    string // the binary
	apiServer int    // its process
	emptyRSS  int64  // of the API server, without Incidents

	templates    map[string]*unstructured.Unstructured // open, resolved and integration
	incidents    int
	integrations int
}

// openPart is the part of the Incidents, one in so many, that are Open.
const openPart = 20

// newScaleSite has a manager write an integration, an Open and a Resolved Incident of 1 KiB of content.
func (c *cluster) newScaleSite(ctx context.Context) (*scaleSite, error) {
	tenants, err := c.begin(ctx, 2)
	if err != nil {
		return nil, err
	}
	defer c.manager.Kill()
	s := &scaleSite{cluster: c, load: tenants[0], namespace: tenants[1].namespace, plugin: filepath.Join(c.folder, "kubectl-tocsin"),
		templates: map[string]*unstructured.Unstructured{}}
	if err := testenv.BuildPlugin(ctx, s.plugin); err != nil {
		return nil, err
	}
	for _, key := range []string{"open", "resolved"} {
		account := loadgen.Run(ctx, loadgen.Load{
			URLs: []string{c.manager.WebhookURL + tenants[1].token}, Senders: 1, Requests: 2, Key: func(int) string { return key },
			Body: func(n int, key string) []byte { return scaleBody(key, key == "resolved" && n == 1) },
		})
		if account.Acknowledged() != 2 {
			return nil, fmt.Errorf("an alert of a template: %v", account.Codes)
		}
		if _, err := c.drained(ctx, tenants[1]); err != nil {
			return nil, err
		}
		if s.templates[key], err = s.read(ctx, "Incident", v1alpha1.IncidentName(tenants[1].integration, key)); err != nil {
			return nil, err
		}
	}
	if s.templates["integration"], err = s.read(ctx, "WebhookIntegration", tenants[1].integration); err != nil {
		return nil, err
	}
	s.apiServer = c.plane.APIServers[0].PID()
	s.emptyRSS, _, err = testenv.Memory(s.apiServer)
	return s, err
}

// scaleBody is an alert that makes 1 KiB of content.
func scaleBody(key string, resolved bool) []byte {
	status := "firing"
	if resolved {
		status = "resolved"
	}
	return fmt.Appendf(nil, `{"title":"High CPU usage on web-17","description":%q,"severity":"critical","status":%q,"dedup_key":%q,`+
		`"hostname":"web-17.example.com","region":"eu-west-1","type":"cpu","link":"https://monitoring.example.com/alerts/17",`+
		`"labels":{"env":"production","service":"api","team":"blue","pod":"web-17-5d4f8c7b9-x2x7k"},`+
		`"annotations":{"runbook":"https://runbooks.example.com/cpu","summary":"CPU usage is high"},`+
		`"values":{"cpu":93.5,"load5":17.25,"load15":12.5}}`, strings.Repeat("CPU usage was over 90 %. ", 20), status, key)
}

func (s *scaleSite) read(ctx context.Context, kind, name string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	err := s.client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, object)
	object.SetResourceVersion("")
	return object, err
}

func scaleIntegration(n int) string { return "scale-" + strconv.Itoa(n) }

// scaleKey is the key of the n-th Incident, and its integration's name.
func scaleKey(n, integrations int) (integration, key string) {
	return scaleIntegration(n % integrations), "disk/web-" + strconv.Itoa(n)
}

// fill copies the templates until there are as many as the row says, and leaves AlertEvents for Open Incidents.
func (s *scaleSite) fill(ctx context.Context, row *scaleRow) error {
	now := time.Now().UTC()
	if err := s.store(ctx, "webhookintegrations", s.integrations, row.Integrations, s.copyIntegration); err != nil {
		return err
	}
	s.integrations = row.Integrations
	err := s.store(ctx, "incidents", s.incidents, row.Incidents, func(n int) (*unstructured.Unstructured, error) {
		return s.copyIncident(n, row, now)
	})
	if err != nil {
		return err
	}
	s.incidents = row.Incidents
	if err := s.awaitWatchCache(ctx); err != nil {
		return err
	}
	template, err := plainAlert()
	if err != nil {
		return err
	}
	return testenv.SideBySide(fillClients, scalePending, func(n int) error {
		alert := template
		integration, key := scaleKey(n*openPart%row.Incidents, row.Integrations)
		alert.DedupKey, alert.ID = key, fmt.Sprintf("pending-%d-%d", row.Incidents, n)
		alert.IncidentName = v1alpha1.IncidentName(integration, key)
		event := plainEvent(s.namespace, alert)
		event.Spec.IntegrationName = integration
		return s.client.Create(ctx, event)
	})
}

// awaitWatchCache waits until the API server has read what was written past it: until its caches do not change any more.
func (s *scaleSite) awaitWatchCache(ctx context.Context) error {
	const gauge, pause = "apiserver_watch_cache_resource_version", 3 * time.Second
	version := func() (total float64, err error) {
		metrics, err := s.apiServerMetrics(ctx)
		for _, metric := range metrics[gauge].GetMetric() {
			if labelsMatch(metric, map[string]string{"resource": "incidents|webhookintegrations"}) {
				total += metric.GetGauge().GetValue()
			}
		}
		if err == nil && total == 0 {
			err = fmt.Errorf("the API server has no metric %s of Tocsin's resources", gauge)
		}
		return total, err
	}
	for before := -1.0; ; {
		now, err := version()
		if err != nil || now == before {
			return err
		}
		before = now
		if !testenv.Pause(ctx, pause) {
			return ctx.Err()
		}
	}
}

func (s *scaleSite) copyIntegration(n int) (*unstructured.Unstructured, error) {
	object := s.templates["integration"].DeepCopy()
	object.SetName(scaleIntegration(n))
	hash := tokens.Hash("scale-token-" + strconv.Itoa(n))
	tokens, _, err := unstructured.NestedSlice(object.Object, "spec", "tokens")
	if err != nil || len(tokens) != 1 {
		return nil, fmt.Errorf("the template has %d tokens: %w", len(tokens), err)
	}
	token, _ := tokens[0].(map[string]any)
	if err := unstructured.SetNestedField(token, hash, "sha256"); err != nil {
		return nil, err
	}
	if err := unstructured.SetNestedSlice(object.Object, tokens, "spec", "tokens"); err != nil {
		return nil, err
	}
	return object, nil
}

// copyIncident makes one of every openPart Incidents Open; the others were resolved within the last six days.
func (s *scaleSite) copyIncident(n int, row *scaleRow, now time.Time) (*unstructured.Unstructured, error) {
	integration, key := scaleKey(n, row.Integrations)
	template := "resolved"
	if n%openPart == 0 {
		template = "open"
	}
	object := s.templates[template].DeepCopy()
	object.SetName(v1alpha1.IncidentName(integration, key))
	age := time.Duration(n) * 6 * 24 * time.Hour / time.Duration(row.Incidents)
	fields := map[string]string{"spec.integrationName": integration, "spec.dedupKey": key}
	if template == "resolved" {
		fields["status.resolvedTime"] = now.Add(-age).Format(time.RFC3339Nano)
		fields["status.openedTime"] = now.Add(-age - time.Minute).Format(time.RFC3339Nano)
	}
	for path, value := range fields {
		if err := unstructured.SetNestedField(object.Object, value, strings.Split(path, ".")...); err != nil {
			return nil, err
		}
	}
	return object, nil
}

// store writes copies into etcd, a hundred at a time: the API server would take minutes for each 100,000.
func (s *scaleSite) store(
	ctx context.Context, resource string, first, end int, object func(n int) (*unstructured.Unstructured, error),
) error {
	const batch = 100
	type put struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}
	type operation struct {
		Put put `json:"requestPut"`
	}
	return testenv.SideBySide(4, (end-first+batch-1)/batch, func(part int) error {
		var operations []operation
		for n := first + part*batch; n < min(end, first+(part+1)*batch); n++ {
			copied, err := object(n)
			if err != nil {
				return err
			}
			copied.SetUID(types.UID(uuid.NewString()))
			value, err := json.Marshal(copied.Object)
			if err != nil {
				return err
			}
			key := "/registry/" + v1alpha1.GroupVersion.Group + "/" + resource + "/" + s.namespace + "/" + copied.GetName()
			operations = append(operations, operation{put{[]byte(key), value}})
		}
		body, err := json.Marshal(map[string]any{"success": operations})
		if err != nil {
			return err
		}
		_, err = testenv.Call(ctx, http.MethodPost, s.plane.EtcdURL+"/v3/kv/txn", string(body))
		return err
	})
}
