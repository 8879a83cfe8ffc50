package mapping_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// interpreter is the program that runs a script of a page; without it the test is skipped, but for in continuous
// integration.
func interpreter(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		testenv.SkipOrFail(t, "there is no %s here", name)
	}
	return path
}

// runCheckmk runs the script of the page against a server that gives an answer, and returns what it posted
// and its exit code.
func runCheckmk(t *testing.T, answer int, variables map[string]any) (string, int) {
	t.Helper()
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(answer)
	}))
	defer server.Close()
	script := filepath.Join(t.TempDir(), "tocsin")
	if err := os.WriteFile(script, []byte(labelled(t, readPage(t, "checkmk"), "script")), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), interpreter(t, "python3"), script)
	command.Env = append(os.Environ(), "NOTIFY_PARAMETER_1="+server.URL, "NOTIFY_PARAMETER_2=https://mon.example.com/prod",
		"NOTIFY_HOSTURL=/check_mk/host", "NOTIFY_SERVICEURL=/check_mk/index.py?start_url=view.py%3Fview_name%3Dservice%26host%3Ddb-02")
	for name, value := range variables {
		command.Env = append(command.Env, "NOTIFY_"+strings.ToUpper(name)+"="+value.(string))
	}
	output, err := command.CombinedOutput()
	if err != nil && command.ProcessState == nil {
		t.Fatal(err)
	}
	if strings.Contains(string(output), server.URL) {
		t.Errorf("it prints the address: %s", output)
	}
	return string(body), command.ProcessState.ExitCode()
}

func TestCheckmkScript(t *testing.T) {
	g := NewWithT(t)
	sample, err := os.ReadFile(filepath.Join("presets", "checkmk.firing.json"))
	g.Expect(err).NotTo(HaveOccurred())
	variables := map[string]any{}
	g.Expect(json.Unmarshal(sample, &variables)).To(Succeed())
	delete(variables, "link") // the script makes it
	for answer, exit := range map[int]int{202: 0, 401: 2, 429: 1, 503: 1} {
		body, code := runCheckmk(t, answer, variables)
		g.Expect(body).To(MatchJSON(sample))
		g.Expect(code).To(Equal(exit), "exit code for the answer %d", answer)
	}
}

// TestZabbixScript runs the script of the media type with a stand-in for Zabbix's HttpRequest.
func TestZabbixScript(t *testing.T) {
	g := NewWithT(t)
	script, parameters := mediaType(t, readPage(t, "zabbix"))
	g.Expect(parameters["tocsin_url"]).To(HaveSuffix("/api/v1/events/webhook/TOKEN"))
	input, err := json.Marshal(map[string]any{"script": script, "parameters": parameters})
	g.Expect(err).NotTo(HaveOccurred())
	const harness = `
		const input = JSON.parse(require('fs').readFileSync(0));
		const posts = [];
		const run = answer => {
			global.HttpRequest = function () {
				this.addHeader = () => {};
				this.post = (url, body) => { posts.push([url, body]); return 'answer'; };
				this.getStatus = () => answer;
			};
			try { return new Function('value', input.script)(JSON.stringify(input.parameters)); } catch (e) { return String(e); }
		};
		console.log(JSON.stringify({accepted: run(202), refused: run(503), posts}));`
	command := exec.CommandContext(t.Context(), interpreter(t, "node"), "-e", harness)
	command.Stdin = bytes.NewReader(input)
	output, err := command.Output()
	g.Expect(err).NotTo(HaveOccurred())
	var result struct {
		Accepted, Refused string
		Posts             [][2]string
	}
	g.Expect(json.Unmarshal(output, &result)).To(Succeed())
	g.Expect(result.Accepted).To(Equal("OK"))
	g.Expect(result.Refused).To(ContainSubstring("Tocsin answered 503"))
	g.Expect(result.Posts[0][0]).To(Equal(parameters["tocsin_url"]))
	g.Expect(result.Posts[0][1]).NotTo(ContainSubstring("TOKEN"), "the token is not in the body")
}
