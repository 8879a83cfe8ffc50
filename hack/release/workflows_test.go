package main

import (
	"bytes"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestWorkflowsOfTheProject(t *testing.T) {
	NewWithT(t).Expect(run(t.Context(), []string{"workflows", "../.."}, &bytes.Buffer{})).To(Succeed())
}

const goodWorkflow = `on: push
permissions: {}
jobs:
  test:
    runs-on: ubuntu-24.04
    timeout-minutes: 10
    permissions:
      contents: write
    steps:
      - uses: actions/checkout@0123456789abcdef0123456789abcdef01234567 # v5.0.0
        with:
          persist-credentials: false
      - run: make test SOAK=3h
      - run: .ci/run
`

func TestWorkflowRules(t *testing.T) {
	root := t.TempDir()
	write(t, root, "Makefile", "test:\n\tgo test\n")
	write(t, root, ".ci/run", "#!/bin/sh\n")
	write(t, root, ".ci/plain", "text\n")
	NewWithT(t).Expect(checkWorkflow(root, goodWorkflow)).To(BeEmpty())
	for name, c := range map[string]struct{ old, changed, want string }{
		"no permissions":              {"permissions: {}\n", "", "permissions at the top"},
		"everything is permitted":     {"permissions: {}", "permissions: write-all", "permissions at the top"},
		"a write for all jobs":        {"permissions: {}", "permissions: {contents: write}", "permissions at the top"},
		"a job without permissions":   {"    permissions:\n      contents: write\n", "", "permissions of its own"},
		"a tag instead of a digest":   {"@0123456789abcdef0123456789abcdef01234567 # v5.0.0", "@v5", "must be pinned"},
		"a short digest":              {"@0123456789abcdef0123456789abcdef01234567", "@0123456789abcdef", "must be pinned"},
		"a digest without a version":  {" # v5.0.0", "", "must be pinned"},
		"an action of the repository": {"actions/checkout@0123456789abcdef0123456789abcdef01234567 # v5.0.0", "./own", "must be pinned"},
		"a job without an end":        {"    timeout-minutes: 10\n", "", "timeout-minutes"},
		"credentials that stay":       {"persist-credentials: false", "fetch-depth: 0", "persist-credentials"},
		"a target that is missing":    {"make test SOAK=3h", "make test tset", "there is no target tset"},
		"a make alone":                {"make test SOAK=3h", "make", "names no target"},
		"a script that is missing":    {".ci/run", ".ci/gone", "neither make nor an executable"},
		"a file that is no script":    {".ci/run", ".ci/plain", "neither make nor an executable"},
		"another program":             {"make test SOAK=3h", "go test ./...", "neither make nor an executable"},
		"two commands":                {"make test SOAK=3h", "make test && make test", "more than one"},
		"two lines":                   {"run: .ci/run", "run: |\n          .ci/run\n          .ci/run", "more than one"},
		"an expression":               {"make test SOAK=3h", "make test SOAK=${{ github.head_ref }}", "more than one"},
		"no YAML":                     {"on: push", "on: [", "yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			broken := strings.Replace(goodWorkflow, c.old, c.changed, 1)
			NewWithT(t).Expect(checkWorkflow(root, broken)).To(ContainElement(ContainSubstring(c.want)))
		})
	}
}
