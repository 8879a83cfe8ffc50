package simulation

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
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

// see notes the definitions that a process was told of.
func (l *link) see(response *http.Response) error {
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
	l.mu.Lock()
	defer l.mu.Unlock()
	switch isOutdated := !bytes.Contains(schema, []byte(`"`+newField+`":`)); {
	case !isOutdated:
		l.outdated = time.Time{}
	case l.outdated.IsZero():
		l.outdated = time.Now()
	}
	return nil
}

// isOutdated says whether the process has known for so long that the definitions are too old.
func (l *link) isOutdated(d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.outdated.IsZero() && time.Since(l.outdated) >= d
}

// stepDownTime is how long a process may take to stop writing once it knows that the definitions are too old.
const stepDownTime = 8 * time.Second

// judgeWrite finds a write that the API server would strip of fields.
func (l *link) judgeWrite(q *http.Request) {
	isWrite := slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch}, q.Method)
	isOurs := strings.Contains(q.URL.Path, "/incidents") ||
		q.Method == http.MethodPost && strings.HasSuffix(q.URL.Path, "/alertevents")
	if !isWrite || !isOurs || !strings.Contains(q.URL.Path, "/namespaces/tenant-") || q.URL.Query().Has("dryRun") ||
		!l.isOutdated(stepDownTime) {
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
