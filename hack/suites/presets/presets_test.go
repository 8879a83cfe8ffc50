// Package presets posts the samples of every preset to a real manager, and checks the Incidents.
package presets

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

const foldTimeout = time.Minute

// samplesTime is the time at which the samples were sent.
var samplesTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// player posts the samples of the presets, each to an integration and a namespace of its preset's name.
type player struct {
	cluster *testenv.Cluster
	manager *testenv.Manager
	tokens  map[string]string // by preset
	later   time.Duration     // since samplesTime
}

// TestSamplesBecomeIncidents checks every preset: an alert that fires, is repeated and is resolved is one Incident, with the state
// and the count that it should have.
func TestSamplesBecomeIncidents(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	presets, err := mapping.Presets()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(presets).NotTo(BeEmpty())
	p := &player{tokens: map[string]string{}, later: time.Since(samplesTime)}
	p.cluster, err = testenv.StartCluster(t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(p.cluster.Stop)
	manager := filepath.Join(t.TempDir(), "manager")
	g.Expect(testenv.BuildManager(ctx, manager)).To(Succeed())
	p.manager, err = p.cluster.RunManager(ctx, testenv.ManagerOptions{Binary: manager})
	g.Expect(err).NotTo(HaveOccurred())
	for _, preset := range presets {
		spec := v1alpha1.WebhookIntegrationSpec{Preset: preset.Name}
		p.tokens[preset.Name], err = p.cluster.Integrate(ctx, preset.Name, preset.Name, spec)
		g.Expect(err).NotTo(HaveOccurred())
	}
	for _, samples := range [][]string{{"firing", "repeat"}, {"resolved"}} {
		for preset := range p.tokens {
			for _, sample := range samples {
				g.Expect(p.post(ctx, preset, sample)).To(Succeed(), "%s.%s.json", preset, sample)
			}
		}
		for preset := range p.tokens {
			g.Expect(p.check(ctx, preset, samples[len(samples)-1])).To(Succeed(), preset)
		}
	}
}

// dated is a time in a sample.
var dated = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)

// sample reads a sample, with its times as if it were sent now.
func (p *player) sample(preset, name string) ([]byte, error) {
	body, err := os.ReadFile(filepath.Join(testenv.Root(), "webhookserver", "mapping", "presets", preset+"."+name+".json"))
	if err != nil {
		return nil, err
	}
	return dated.ReplaceAllFunc(body, func(text []byte) []byte {
		at, err := time.Parse(time.RFC3339Nano, string(text))
		if err != nil || at.Year() <= 1 {
			return text
		}
		return at.Add(p.later).AppendFormat(nil, time.RFC3339Nano)
	}), nil
}

func (p *player) post(ctx context.Context, preset, sample string) error {
	body, err := p.sample(preset, sample)
	if err != nil {
		return err
	}
	address := p.manager.WebhookURL + p.tokens[preset]
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("%s: %s", response.Status, answer)
	}
	return err
}

// check waits until everything is folded. Then there is one Incident for each alert of the sample that was posted last. It counts the
// alerts of all samples so far, and is resolved if the last one says so.
func (p *player) check(ctx context.Context, preset, sample string) error {
	ctx, cancel := context.WithTimeout(ctx, foldTimeout)
	defer cancel()
	if _, err := loadgen.Drained(ctx, p.cluster.Client, preset); err != nil {
		return err
	}
	posts := int64(2)
	if sample == "resolved" {
		posts++
	}
	body, err := p.sample(preset, sample)
	if err != nil {
		return err
	}
	value, _, err := payload.ParseAny(body)
	if err != nil {
		return err
	}
	program, err := mapping.Compile(preset, nil)
	if err != nil {
		return err
	}
	result, err := program.Alerts(value, nil, time.Now())
	if err != nil {
		return err
	}
	var incidents v1alpha1.IncidentList
	if err := p.cluster.Client.List(ctx, &incidents, client.InNamespace(preset)); err != nil {
		return err
	}
	states := map[string]v1alpha1.IncidentState{}
	for _, alert := range result.Alerts {
		states[alert.DedupKey] = v1alpha1.IncidentOpen
		if alert.Status == v1alpha1.AlertResolved {
			states[alert.DedupKey] = v1alpha1.IncidentResolved
		}
	}
	if len(incidents.Items) != len(states) {
		return fmt.Errorf("there are %d Incidents for %d keys", len(incidents.Items), len(states))
	}
	for _, incident := range incidents.Items {
		if incident.Status.State != states[incident.Spec.DedupKey] || incident.Status.AlertCount != posts {
			return fmt.Errorf("%s is %s with %d alerts; it should be %s with %d", incident.Spec.DedupKey,
				incident.Status.State, incident.Status.AlertCount, states[incident.Spec.DedupKey], posts)
		}
	}
	return nil
}
