package webhookserver

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// httpDocs is docs/http.md.
func httpDocs(t *testing.T) string {
	t.Helper()
	return page(t, "http.md")
}

// page is a page of the documentation.
func page(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", name))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(content)
}

// madeUp are the parts of an answer that no two requests have in common: what is random, and the names of
// incidents, which may be derived from that, and durations.
var madeUp = regexp.MustCompile(`("incident": *")[^"]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// took is how long something took.
var took = regexp.MustCompile(`("took": *)[0-9.]+`)

func withoutMadeUp(answer string) string {
	return madeUp.ReplaceAllString(took.ReplaceAllString(answer, "${1}0"), "${1}…")
}

func TestExamplesInTheDocumentation(t *testing.T) {
	_, text, _ := strings.Cut(httpDocs(t), "\n## Examples\n")
	text, _, _ = strings.Cut(text, "\n## ")
	fence := regexp.MustCompile("(?s)```http (request|response)\n(.*?)```")
	examples := strings.Split(text, "\n### ")[1:]
	for section := range strings.SplitSeq(page(t, "protocols.md"), "\n## ") {
		if fence.MatchString(section) {
			examples = append(examples, section)
		}
	}
	NewWithT(t).Expect(len(examples)).To(BeNumerically(">=", 10))
	for _, example := range examples {
		name, _, _ := strings.Cut(example, "\n")
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			blocks := map[string]string{}
			for _, match := range fence.FindAllStringSubmatch(example, -1) {
				blocks[match[1]] = match[2]
			}
			response := send(t, newBench(), blocks["request"])
			head, wantBody, _ := strings.Cut(blocks["response"], "\n\n")
			want, err := http.ReadResponse(bufio.NewReader(strings.NewReader(strings.TrimSpace(head)+"\n\n")), nil)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.StatusCode).To(Equal(want.StatusCode))
			for header := range want.Header {
				g.Expect(response.Header.Get(header)).To(Equal(want.Header.Get(header)))
			}
			body, err := io.ReadAll(response.Body)
			g.Expect(err).NotTo(HaveOccurred())
			if wantBody != "" {
				g.Expect(withoutMadeUp(string(body))).To(MatchJSON(withoutMadeUp(wantBody)))
			}
		})
	}
}

// send has a request as it is written in the documentation answered, with testToken for TOKEN.
func send(t *testing.T, b *bench, text string) *http.Response {
	t.Helper()
	head, body, _ := strings.Cut(strings.ReplaceAll(text, "TOKEN", testToken), "\n\n")
	request, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.TrimSpace(head) + "\nHost: tocsin\n\n")))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	body = strings.TrimSpace(body)
	request.Body, request.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	recorder := httptest.NewRecorder()
	b.ServeHTTP(recorder, request)
	return recorder.Result()
}

func TestProblemsAreDocumented(t *testing.T) {
	g := NewWithT(t)
	files, err := filepath.Glob("*.go")
	g.Expect(err).NotTo(HaveOccurred())
	ofFeatures, err := filepath.Glob("*/*.go")
	g.Expect(err).NotTo(HaveOccurred())
	text := httpDocs(t)
	literal := regexp.MustCompile(`(?s)= (?:protocol\.)?[pP]roblem\{\s*Type: "([^"]+)", Status: http\.\w+.*?\}`)
	var problems [][]string
	for _, file := range append(files, ofFeatures...) {
		source, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		problems = append(problems, literal.FindAllStringSubmatch(string(source), -1)...)
	}
	g.Expect(len(problems)).To(BeNumerically(">", 20))
	for _, match := range problems {
		row := regexp.MustCompile("(?m)^\\| `" + match[1] + "` .*$").FindString(text)
		g.Expect(row).NotTo(BeEmpty(), "%s is not in the table", match[1])
		if reason := regexp.MustCompile(`[rR]eason: *"(\w+)"`).FindStringSubmatch(match[0]); reason != nil {
			g.Expect(row).To(ContainSubstring("`" + reason[1] + "`"))
		}
	}
	// One with several reasons has a row for each, and no reason twice.
	reasons := regexp.MustCompile("(?m)^\\| `[a-z-]+` \\| [45][^|]+\\|[^|]*").FindAllString(text, -1)
	g.Expect(slices.Compact(slices.Sorted(slices.Values(reasons)))).To(HaveLen(len(reasons)))
	rows := slices.Compact(regexp.MustCompile("(?m)^\\| `[a-z-]+` \\| [45]").FindAllString(text, -1))
	types := map[string]bool{}
	for _, match := range problems {
		types[match[1]] = true
	}
	g.Expect(rows).To(HaveLen(len(types)))
	for _, delivery := range deliveryHeaders {
		g.Expect(text).To(ContainSubstring("`" + delivery.name + "`"))
	}
}
