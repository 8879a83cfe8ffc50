package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
	"github.com/tocsin-dev/tocsin/hack/lib/traces"
	"github.com/tocsin-dev/tocsin/hack/suites/faults/proxy"
)

// trace is what the replicas asked of the API servers during a run, and what reached them.
type trace struct {
	newest atomic.Int64 // the newest resourceVersion that anybody has seen

	mu     sync.Mutex
	facts  []fact
	writes map[objectKey][]*sentWrite // in the order of their answers
}

// fact is something that a process learned. It is told to the judge right after the commit of a revision: at the earliest moment,
// since what the process did with it was committed later.
type fact struct {
	after int64
	tell  func(*traces.Judge)
}

// sentWrite is a write that a process sent.
type sentWrite struct {
	*proxy.Exchange
	by       *traces.Process
	revision int64 // by its answer, 0 if that has none
}

// observe begins a trace of all replicas. It ends with the next one.
func (r *rig) observe() *trace {
	t := &trace{writes: map[objectKey][]*sentWrite{}}
	for _, replica := range r.replicas {
		replica.traced.Store(nil)
		replica.proxy.SetObserver(&observer{t, replica})
	}
	return t
}

// observer notes for a trace what passes the proxy of a replica.
type observer struct {
	*trace
	replica *replica
}

// noted is what an observer notes about a request when it comes.
type noted struct {
	by    *traces.Process
	after int64
}

// Came implements proxy.Observer.
func (o *observer) Came(x *proxy.Exchange) {
	x.Note = noted{o.replica.tracedProcess(), o.newest.Load()}
}

// Answered implements proxy.Observer.
func (o *observer) Answered(x *proxy.Exchange) {
	note, _ := x.Note.(noted)
	isOK := x.Code == http.StatusOK || x.Code == http.StatusCreated
	resource, _, _ := strings.Cut(x.Resource, "/")
	if resource != traces.AlertEvents && resource != traces.Incidents || x.Query.Has("dryRun") {
		return
	}
	switch x.Verb {
	case "create", "update", "patch", "delete":
		if x.Code == 0 || isOK || x.Code >= http.StatusInternalServerError {
			o.wrote(x, note.by)
		}
	case "list":
		if isOK && resource == traces.AlertEvents {
			o.listed(x, note.by)
		}
	case "get":
		if resource == traces.Incidents && !x.Query.Has("resourceVersion") && (isOK || x.Code == http.StatusNotFound) {
			name := types.NamespacedName{Namespace: x.Namespace, Name: x.Name}
			read := func(j *traces.Judge) { j.Read(note.by, name, time.Now()) }
			o.add(note.after, read) // nobody knows of which revision it is
			o.add(o.newest.Load(), read)
		}
	}
}

func (o *observer) wrote(x *proxy.Exchange, by *traces.Process) {
	write := &sentWrite{Exchange: x, by: by}
	if x.Verb != "delete" {
		write.revision = o.see(revisionOf(x.Answer))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	resource, _, _ := strings.Cut(x.Resource, "/")
	key := objectKey{resource, x.Namespace, x.Name}
	o.writes[key] = append(o.writes[key], write)
}

// listed notes a list of AlertEvents. Folds list the metadata from the quorum, and caches whole objects.
func (o *observer) listed(x *proxy.Exchange, by *traces.Process) {
	revision, namespace := o.see(listRevision(x)), x.Namespace
	ofMetadata := strings.Contains(x.Header.Get("Accept"), "PartialObjectMetadataList")
	switch {
	case revision == 0 || x.Query.Has("continue"):
	case !ofMetadata:
		o.add(revision, func(*traces.Judge) { by.Shown(namespace, revision, true, time.Now()) })
	case !x.Query.Has("resourceVersion"):
		o.add(revision, func(*traces.Judge) { by.Listed(namespace, revision) })
	}
}

// Shown implements proxy.Observer.
func (o *observer) Shown(call proxy.Call, line []byte) {
	var event struct{ Object json.RawMessage }
	if call.Resource != traces.AlertEvents || json.Unmarshal(line, &event) != nil {
		return
	}
	by := o.replica.tracedProcess()
	if revision := o.see(revisionOf(event.Object)); revision > 0 {
		o.add(revision, func(*traces.Judge) { by.Shown(call.Namespace, revision, false, time.Now()) })
	}
}

// see returns a revision, and remembers the newest one.
func (t *trace) see(revision int64) int64 {
	for newest := t.newest.Load(); revision > newest && !t.newest.CompareAndSwap(newest, revision); newest = t.newest.Load() {
	}
	return revision
}

func (t *trace) add(after int64, tell func(*traces.Judge)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.facts = append(t.facts, fact{after, tell})
}

// revisionOf returns the resourceVersion of an object, or of a list, that is JSON; 0 if it has none.
func revisionOf(object []byte) int64 {
	var meta struct {
		Metadata struct{ ResourceVersion string }
	}
	if json.Unmarshal(object, &meta) != nil {
		return 0
	}
	revision, _ := strconv.ParseInt(meta.Metadata.ResourceVersion, 10, 64)
	return revision
}

// metadataCodecs read the lists of the metadata client.
var metadataCodecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(scheme)
}()

func listRevision(x *proxy.Exchange) int64 {
	if !strings.HasPrefix(x.ContentType, runtime.ContentTypeProtobuf) {
		return revisionOf(x.Answer)
	}
	object, _, err := metadataCodecs.UniversalDeserializer().Decode(x.Answer, nil, nil)
	list, ok := object.(*metav1.PartialObjectMetadataList)
	if err != nil || !ok {
		return 0
	}
	revision, _ := strconv.ParseInt(list.ResourceVersion, 10, 64)
	return revision
}

// tracedProcess returns the present process of the replica.
func (r *replica) tracedProcess() *traces.Process {
	for {
		if process := r.traced.Load(); process != nil {
			return process
		}
		r.traced.CompareAndSwap(nil, traces.NewProcess(fmt.Sprintf("%s (run %d)", r.name, r.exits.Load()+1)))
	}
}

// objectKey names an object.
type objectKey struct{ resource, namespace, name string }

// judge has the model judge what was committed. Events of watches count as read when they were on their way: so a process may
// have gone by less than what reached it.
func (t *trace) judge(commits []commit) (rejected oracle.Findings, steps int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	judge := traces.New(traces.Options{LooseClocks: true, Loose: true})
	facts := slices.Clone(t.facts)
	slices.SortStableFunc(facts, func(a, b fact) int { return cmp.Compare(a.after, b.after) })
	last := map[objectKey]commit{}
	for _, c := range commits {
		for len(facts) > 0 && facts[0].after < c.revision {
			facts[0].tell(judge)
			facts = facts[1:]
		}
		if c.Resource != traces.AlertEvents && c.Resource != traces.Incidents {
			continue
		}
		key := objectKey{c.Resource, c.Namespace, c.Name}
		before := last[key]
		step := &traces.Commit{Revision: c.revision, At: time.Now(), Type: watch.Modified, Resource: c.Resource}
		switch {
		case c.Created:
			step.Type = watch.Added
		case c.Deleted:
			step.Type, c.Object = watch.Deleted, before.Object
		}
		last[key] = c
		if err := utiljson.Unmarshal(c.Object, &step.Object); err != nil {
			return nil, 0, fmt.Errorf("reading %v of revision %d: %w", key, c.revision, err)
		}
		if w := t.writeOf(key, &c, before.revision); w != nil {
			_, step.Subresource, _ = strings.Cut(w.Resource, "/")
			step.By, step.Verb, step.Body = w.by, w.Verb, w.Body
		}
		setRevision(step.Object, c.revision)
		judge.Commit(step)
	}
	return judge.Findings(), judge.Steps(), nil
}

// setRevision sets the resourceVersion of an object, which etcd's values lack.
func setRevision(object map[string]any, revision int64) {
	if meta, ok := object["metadata"].(map[string]any); ok {
		meta["resourceVersion"] = strconv.FormatInt(revision, 10)
	}
}

// writeOf returns the write that made a commit of an object, after this revision of it: the one whose answer says so, or one
// without an answer that could have. Nil: a user, or the API server, made it.
func (t *trace) writeOf(key objectKey, c *commit, before int64) *sentWrite {
	var maybe *sentWrite
	for _, w := range t.writes[key] {
		if (w.Verb == "create") != c.Created || (w.Verb == "delete") != c.Deleted {
			continue
		}
		isAnswered := w.Code == http.StatusOK || w.Code == http.StatusCreated
		switch {
		case isAnswered && (c.Deleted || w.revision == c.revision):
			return w
		case !isAnswered && (c.Created || c.Deleted || bytes.Contains(w.Body, strconv.AppendInt([]byte{'"'}, before, 10))):
			maybe = w
		}
	}
	return maybe
}
