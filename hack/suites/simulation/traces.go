package simulation

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
	"github.com/tocsin-dev/tocsin/hack/lib/traces"
)

// tracer tells the judge of the traces what the processes send, and what reaches them.
type tracer struct {
	mu    sync.Mutex
	judge *traces.Judge // nil: nobody judges
	runs  map[string]int
}

func (t *tracer) process(replica string) *traces.Process {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.runs == nil {
		t.runs = map[string]int{}
	}
	t.runs[replica]++
	return traces.NewProcess(fmt.Sprintf("%s (run %d)", replica, t.runs[replica]))
}

// begin has the steps of a story judged. The model knows only watches that keep their promise.
func (t *tracer) begin(story *Story, say func(format string, args ...any)) {
	if story.breaksWatches() {
		return
	}
	t.judge = traces.New(traces.Options{Say: say, LooseClocks: story.hasClocks()})
}

func (t *tracer) findings() (found []string) {
	t.tell(func(j *traces.Judge) { found = slices.Clone(j.Findings()) })
	return found
}

// tell calls tell if somebody judges.
func (t *tracer) tell(tell func(*traces.Judge)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.judge != nil {
		tell(t.judge)
	}
}

// commit is for apiserver.Server.OnCommit.
func (t *tracer) commit(c apiserver.Commit) {
	if c.Resource != traces.AlertEvents && c.Resource != traces.Incidents {
		return
	}
	fact := &traces.Commit{Commit: c, At: time.Now()}
	if p, ok := c.Faults.(*process); ok {
		fact.By = p.traced
	}
	t.tell(func(j *traces.Judge) { j.Commit(fact) })
}

func (t *tracer) sent(call *apiserver.Call) {
	if call.Verb == "create" && call.Resource == traces.AlertEvents && !call.Query.Has("dryRun") {
		t.tell(func(j *traces.Judge) {
			j.Sent(types.NamespacedName{Namespace: call.Namespace, Name: call.Name}, call.Body)
		})
	}
}

// Leave implements apiserver.Faults.
func (l *link) Leave(ctx context.Context, call *apiserver.Call, code int) error {
	isList := call.Verb == "list" && call.Resource == traces.AlertEvents && code == http.StatusOK
	// Folds list the metadata, and caches whole objects.
	ofMetadata := strings.Contains(call.Header.Get("Accept"), "PartialObjectMetadataList")
	l.tellAnswer(call, code, isList && ofMetadata)
	if err := l.leave(ctx, call); err != nil || !isList || ofMetadata {
		return err
	}
	if err := l.run(); err != nil { // only then does the process get it
		return err
	}
	l.tracer.tell(func(*traces.Judge) { l.traced.Shown(call.Namespace, call.Revision, true, time.Now()) })
	return nil
}

// tellAnswer tells the judge of a quorum list, or of a quorum read of an Incident.
func (l *link) tellAnswer(call *apiserver.Call, code int, isList bool) {
	isRead := call.Verb == "get" && call.Resource == traces.Incidents && (code == http.StatusOK || code == http.StatusNotFound)
	if !call.Quorum || !isList && !isRead || isList && call.Query.Has("continue") {
		return
	}
	l.tracer.tell(func(j *traces.Judge) {
		if isList {
			l.traced.Listed(call.Namespace, call.Revision)
		} else {
			j.Read(l.traced, types.NamespacedName{Namespace: call.Namespace, Name: call.Name}, time.Now())
		}
	})
}

// Deliver implements apiserver.Faults.
func (l *link) Deliver(ctx context.Context, call *apiserver.Call, revision int64) error {
	err := l.deliver(ctx, call, revision)
	if err == nil && call.Resource == traces.AlertEvents {
		l.tracer.tell(func(*traces.Judge) { l.traced.Shown(call.Namespace, revision, false, time.Now()) })
	}
	return err
}
