package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// scaleSite is a cluster that is filled with copies of objects that a manager wrote.
type scaleSite struct {
	*cluster
	load      tenant // takes the load
	namespace string // has the copies
	plugin    string // the binary
	emptyRSS  int64  // of the API server, without Incidents

	// What a manager wrote.
	open, resolved v1alpha1.Incident
	integration    v1alpha1.WebhookIntegration

	incidents    int // so many copies
	integrations int
}

// openPart is the part of the Incidents, one in so many, that are Open.
const openPart = 20

// newScaleSite has a manager write an integration, an Open and a Resolved Incident of 1 KiB of content.
func (c *cluster) newScaleSite(ctx context.Context) (*scaleSite, error) {
	tenants, err := c.begin(ctx, 2, 1)
	defer c.stopManagers()
	if err != nil {
		return nil, err
	}
	t := tenants[1]
	s := &scaleSite{
		cluster: c, load: tenants[0], namespace: t.namespace, plugin: filepath.Join(c.folder, "kubectl-tocsin"),
	}
	if err := testenv.BuildPlugin(ctx, s.plugin); err != nil {
		return nil, err
	}
	for key, incident := range map[string]*v1alpha1.Incident{"open": &s.open, "resolved": &s.resolved} {
		account := loadgen.Run(ctx, loadgen.Load{
			URLs: c.urls(t), Senders: 1, Requests: 2, Key: func(int) string { return key },
			Body: func(n int, key string) []byte { return scaleBody(key, key == "resolved" && n == 1) },
		})
		if account.Acknowledged() != 2 {
			return nil, fmt.Errorf("an alert of a template: %v", account.Codes)
		}
		if _, err := c.drained(ctx, t); err != nil {
			return nil, err
		}
		name := client.ObjectKey{Namespace: t.namespace, Name: v1alpha1.IncidentName(t.integration, key)}
		if err := c.Client.Get(ctx, name, incident); err != nil {
			return nil, err
		}
	}
	name := client.ObjectKey{Namespace: t.namespace, Name: t.integration}
	if err := c.Client.Get(ctx, name, &s.integration); err != nil {
		return nil, err
	}
	s.emptyRSS, _, err = testenv.Memory(c.APIServers[0].PID())
	return s, err
}

// scaleBody is an alert that makes 1 KiB of content.
func scaleBody(key string, resolved bool) []byte {
	body := bytes.Replace(loadgen.Payload(17, key), []byte("17.25."), bytes.Repeat([]byte(" CPU usage was over 90 %."), 17), 1)
	if resolved {
		body = bytes.Replace(body, []byte(`"firing"`), []byte(`"resolved"`), 1)
	}
	return body
}

func scaleIntegration(n int) string { return "scale-" + strconv.Itoa(n) }

// key is the key of the n-th Incident, and its integration's name.
func (s *scaleSite) key(n int) (integration, key string) {
	return scaleIntegration(n % s.integrations), "disk/web-" + strconv.Itoa(n)
}

// fill copies the templates until there are so many, and leaves AlertEvents for Open Incidents.
func (s *scaleSite) fill(ctx context.Context, incidents, integrations int) error {
	now := time.Now().UTC()
	if err := s.store(ctx, "WebhookIntegration", s.integrations, integrations, s.copyIntegration); err != nil {
		return err
	}
	first := s.incidents
	s.incidents, s.integrations = incidents, integrations
	copied := func(n int) client.Object { return s.copyIncident(n, now) }
	if err := s.store(ctx, "Incident", first, incidents, copied); err != nil {
		return err
	}
	if err := s.awaitWatchCache(ctx); err != nil {
		return err
	}
	template, err := plainAlert()
	if err != nil {
		return err
	}
	return testenv.SideBySide(fillClients, scalePending, func(n int) error {
		alert := template
		integration, key := s.key(n * openPart % incidents)
		alert.DedupKey, alert.ID = key, fmt.Sprintf("pending-%d-%d", incidents, n)
		alert.IncidentName = v1alpha1.IncidentName(integration, key)
		event := plainEvent(s.namespace, alert)
		event.Spec.IntegrationName = integration
		return s.Client.Create(ctx, event)
	})
}

// awaitWatchCache waits until the API server has read what was written past it: until its caches do not change any more.
func (s *scaleSite) awaitWatchCache(ctx context.Context) error {
	const gauge, pause = "apiserver_watch_cache_resource_version", 3 * time.Second
	for before := 0.0; ; {
		metrics, err := s.apiServerMetrics(ctx)
		if err != nil {
			return err
		}
		now := 0.0
		for _, resource := range []string{"incidents", "webhookintegrations"} {
			now += metrics.sum(gauge, map[string]string{"resource": resource})
		}
		switch now {
		case 0:
			return fmt.Errorf("the API server has no metric %s of Tocsin's resources", gauge)
		case before:
			return nil
		default:
			before = now
		}
		if !testenv.Pause(ctx, pause) {
			return ctx.Err()
		}
	}
}

func (s *scaleSite) copyIntegration(n int) client.Object {
	integration := s.integration.DeepCopy()
	integration.Name = scaleIntegration(n)
	integration.Spec.Tokens = testenv.Tokens(s.namespace, integration.Name)
	return integration
}

// copyIncident makes one of every openPart Incidents Open; the others were resolved within the last six days.
func (s *scaleSite) copyIncident(n int, now time.Time) client.Object {
	incident := s.resolved.DeepCopy()
	if n%openPart == 0 {
		incident = s.open.DeepCopy()
	} else {
		resolved := v1alpha1.NewTimestamp(now.Add(-time.Duration(n) * 6 * 24 * time.Hour / time.Duration(s.incidents)))
		opened := v1alpha1.NewTimestamp(resolved.Add(-time.Minute))
		incident.Status.ResolvedTime, incident.Status.OpenedTime = &resolved, &opened
	}
	incident.Spec.IntegrationName, incident.Spec.DedupKey = s.key(n)
	incident.Name = v1alpha1.IncidentName(incident.Spec.IntegrationName, incident.Spec.DedupKey)
	return incident
}

// store writes copies into etcd, a hundred at a time: the API server would take minutes for each 100,000.
func (s *scaleSite) store(ctx context.Context, kind string, first, end int, copied func(n int) client.Object) error {
	const batch = 100
	type put map[string][]byte
	folder := "/registry/" + v1alpha1.GroupVersion.Group + "/" + strings.ToLower(kind) + "s/" + s.namespace + "/"
	return testenv.SideBySide(4, (end-first+batch-1)/batch, func(part int) error {
		var operations []map[string]put
		for n := first + part*batch; n < min(end, first+(part+1)*batch); n++ {
			object := copied(n)
			object.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
			object.SetResourceVersion("")
			object.SetUID(types.UID(uuid.NewString()))
			value, err := json.Marshal(object)
			if err != nil {
				return err
			}
			operations = append(operations, map[string]put{
				"requestPut": {"key": []byte(folder + object.GetName()), "value": value},
			})
		}
		return s.CallEtcd(ctx, "/v3/kv/txn", map[string]any{"success": operations}, &struct{}{})
	})
}
