package simulation

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
)

// rollBack has the API server publish an older CustomResourceDefinition of AlertEvents for a while.
type rollBack struct{ d time.Duration }

func (o rollBack) do(w *world) {
	w.network.rolledBack.Store(true)
	w.server.PublishWithout("AlertEvent", "properties", "spec", "properties", "report", "properties", newField)
	w.later(o.d, func() { w.server.PublishWithout("AlertEvent") })
}

// newField is the field of reports that the older definition lacks. Only users write it.
const newField = "comment"

// definitionsSeen is what a process knows of the CustomResourceDefinitions, and what it does when they are too old.
type definitionsSeen struct {
	mu       sync.Mutex
	outdated time.Time // since when it knows that they are; zero: they are not
}

// see notes the definitions that a process was told of.
func (s *definitionsSeen) see(response *http.Response) error {
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(text))
	var definitions struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &definitions); err != nil {
		return err
	}
	schema, found := definitions.Components.Schemas["dev.tocsin.v1alpha1.AlertEvent"]
	if !found { // a list of what is published
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch isOutdated := !bytes.Contains(schema, []byte(`"`+newField+`":`)); {
	case !isOutdated:
		s.outdated = time.Time{}
	case s.outdated.IsZero():
		s.outdated = time.Now()
	}
	return nil
}

// isOutdated says whether the process has known for so long that the definitions are too old.
func (s *definitionsSeen) isOutdated(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.outdated.IsZero() && time.Since(s.outdated) >= d
}

// stepDownTime is how long a process may take to stop writing once it knows that the definitions are too old.
const stepDownTime = 8 * time.Second

// judgeWrite finds a write that the API server would strip of fields.
func (l *link) judgeWrite(q *http.Request) {
	isWrite := slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch}, q.Method)
	isOurs := strings.Contains(q.URL.Path, "/incidents") ||
		q.Method == http.MethodPost && strings.HasSuffix(q.URL.Path, "/alertevents")
	if !isWrite || !isOurs || !strings.Contains(q.URL.Path, "/namespaces/tenant-") || q.URL.Query().Has("dryRun") ||
		!l.definitions.isOutdated(stepDownTime) {
		return
	}
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	l.found.Add("D: %s knows that the CustomResourceDefinitions are too old, and sends %s %s", l.client, q.Method, q.URL.Path)
}

// findings are the writes of processes that know of older CustomResourceDefinitions.
func (n *network) findings() oracle.Findings {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.found)
}
