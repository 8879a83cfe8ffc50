package mapping_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// TestWazuhScript runs the script of the page as Wazuh's integrator does: with the file of an alert, a key and the address.
func TestWazuhScript(t *testing.T) {
	g := NewWithT(t)
	interpreter(t, "curl")
	sample := filepath.Join("presets", "wazuh.firing.json")
	wanted, err := os.ReadFile(sample)
	g.Expect(err).NotTo(HaveOccurred())
	script := filepath.Join(t.TempDir(), "custom-tocsin")
	g.Expect(os.WriteFile(script, []byte(labelled(t, readPage(t, "wazuh"), "script")), 0o600)).To(Succeed())
	for answer, succeeds := range map[int]bool{http.StatusAccepted: true, http.StatusUnauthorized: false} {
		var body []byte
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ = io.ReadAll(r.Body)
			w.WriteHeader(answer)
		}))
		command := exec.CommandContext(t.Context(), interpreter(t, "sh"), script, sample, "", server.URL)
		output, err := command.CombinedOutput()
		server.Close()
		g.Expect(err == nil).To(Equal(succeeds), "%d: %s", answer, output)
		g.Expect(body).To(MatchJSON(wanted))
		g.Expect(string(output)).NotTo(ContainSubstring(server.URL), "the address has the token")
	}
}
