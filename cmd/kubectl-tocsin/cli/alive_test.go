package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// TestTheAliveSignal runs what the CronJob of the component alive runs.
func TestTheAliveSignal(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "components", "alive", "cron_job.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	var job batchv1.CronJob
	g.Expect(yaml.UnmarshalStrict(text, &job)).To(Succeed())
	container := job.Spec.JobTemplate.Spec.Template.Spec.Containers[0]
	g.Expect(container.Env).To(ConsistOf(HaveField("Name", urlVariable)))

	code, posted := http.StatusAccepted, map[string]any{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.Expect(json.NewDecoder(r.Body).Decode(&posted)).To(Succeed())
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"status":"accepted","alerts":[{"dedup_key":"alive","incident":"tocsin-system/alive"}]}`))
	}))
	defer server.Close()
	t.Setenv(urlVariable, server.URL+webhookPath+"/"+testenv.Token("tocsin-system", "alive"))
	run := func() (int, string) {
		var output bytes.Buffer
		exit := Main(append([]string{"kubectl-tocsin"}, container.Args...), strings.NewReader(""), &output, &output)
		return exit, output.String()
	}
	exit, output := run()
	g.Expect(exit).To(BeZero(), output)
	g.Expect(posted).To(Equal(map[string]any{"title": "Tocsin is alive", "dedup_key": "alive", "severity": "info"}))
	code = http.StatusServiceUnavailable
	exit, output = run()
	g.Expect(exit).NotTo(BeZero(), "Kubernetes tries again: "+output)
}
