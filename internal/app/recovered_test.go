package app

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// kubectl runs kubectl with an input and returns what it prints.
func kubectl(t *testing.T, input string, arguments ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(testenv.Assets(), "kubectl"), arguments...)
	command.Stdin = strings.NewReader(input)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %v: %v: %s", arguments, err, output)
	}
	return string(output)
}

// recoveryManifest is the AlertEvent that docs/backup.md has a person create from an unreadable one, with these alerts.
func recoveryManifest(t *testing.T, unreadable *v1alpha1.AlertEvent, alerts string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testenv.Root(), "docs/backup.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, manifest, found := strings.Cut(string(text), "```yaml\n")
	manifest, _, closed := strings.Cut(manifest, "```")
	if !found || !closed {
		t.Fatal("docs/backup.md has no manifest")
	}
	return strings.NewReplacer(
		"NAMESPACE", unreadable.Namespace, "INTEGRATION", unreadable.Spec.IntegrationName,
		"RECEIVED", unreadable.Spec.ReceivedTime.Format(time.RFC3339), "ALERTS", alerts,
	).Replace(manifest)
}

// editedExport is the export of an unreadable AlertEvent with its alerts in place of the damaged text, and the last digit of its name
// changed.
func editedExport(t *testing.T, unreadable *v1alpha1.AlertEvent, alerts string) string {
	t.Helper()
	exported := kubectl(t, "", "-n", unreadable.Namespace, "get", "alertevent", unreadable.Name, "-o", "json")
	var event struct {
		APIVersion     string         `json:"apiVersion"`
		Kind           string         `json:"kind"`
		Metadata, Spec map[string]any // as JSON names them: the decoder ignores case
	}
	if err := json.Unmarshal([]byte(exported), &event); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"} {
		delete(event.Metadata, field)
	}
	event.Metadata["name"] = unreadable.Name[:len(unreadable.Name)-1] + "f"
	delete(event.Spec, "encoding")
	event.Spec["alerts"] = alerts
	edited, err := json.Marshal(map[string]any{
		"apiVersion": event.APIVersion, "kind": event.Kind, "metadata": event.Metadata, "spec": event.Spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(edited)
}

// TestARecoveredAlertEventIsFolded damages an AlertEvent and recovers its alerts, as docs/backup.md says, and otherwise.
func TestARecoveredAlertEventIsFolded(t *testing.T) {
	g := NewWithT(t)
	p := startProcess(t, config.Host)
	damaged := func(name, key string) (event *v1alpha1.AlertEvent, alerts string) {
		event = alertEvent(p.namespace, name, key, v1alpha1.AlertFiring, 2*time.Hour)
		g.Expect(queue.Decode(event)).To(Succeed())
		event.Alerts[0].Description = strings.Repeat("long ", queue.MinCompressed/5)
		text := testenv.Text(event.Alerts...)
		g.Expect(queue.Encode(event)).To(Succeed())
		event.Spec.Alerts = event.Spec.Alerts[:len(event.Spec.Alerts)/2]
		g.Expect(p.client.Create(t.Context(), event, client.FieldOwner(v1alpha1.FieldManager))).To(Succeed())
		return event, string(text)
	}
	first, alerts := damaged("01a1ffa9-c360-72bb-b2de-ae677b9a4f82", "by-the-docs")
	kubectl(t, recoveryManifest(t, first, alerts), "create", "-f", "-")
	second, alerts := damaged("01a1ffa9-c360-72bb-b2de-ae677b9a4f92", "an-edited-export")
	kubectl(t, editedExport(t, second, alerts), "create", "-f", "-")
	for _, key := range []string{"by-the-docs", "an-edited-export"} {
		g.Eventually(func() v1alpha1.IncidentState { return p.state(t.Context(), key) }, "1m", "50ms").
			Should(Equal(v1alpha1.IncidentOpen), key)
	}
	var left v1alpha1.AlertEventList
	g.Eventually(func() []v1alpha1.AlertEvent {
		g.Expect(p.client.List(t.Context(), &left, client.InNamespace(p.namespace))).To(Succeed())
		return left.Items
	}, "1m", "50ms").Should(HaveLen(2), "the damaged ones stay")
	p.expectEnd(g)
}
