package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
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

// objectKey names an object.
type objectKey struct{ resource, namespace, name string }

// fact is something that a process learned. It is told to the judge right after the commit of a revision: at the earliest moment,
// since what the process did with it was committed later.
type fact struct {
	after int64
	tell  func(*traces.Judge)
}

// sentWrite is a write that a process sent, and that was answered with success or may have been carried out.
type sentWrite struct {
	by                *traces.Process
	verb, subresource string
	body              []byte
	isAnswered        bool
	over              int64 // the resourceVersion on condition of which it writes; 0 if it has none
	revision          int64 // that its answer has; 0 if it has none
}

// observe begins the trace of a run, and returns what ends it.
func (r *run) observe() (stop func()) {
	r.trace = &trace{writes: map[objectKey][]*sentWrite{}}
	for _, replica := range r.replicas {
		replica.traced.Store(nil)
		replica.proxy.Observe(&observer{r.trace, replica})
	}
	return func() {
		for _, replica := range r.replicas {
			replica.proxy.Observe(nil)
		}
	}
}

// observer notes for a trace what passes the proxy of a replica.
type observer struct {
	*trace
	replica *replica
}

// Came implements proxy.Observer.
func (o *observer) Came(call proxy.Call, r *http.Request, body []byte) (answered func(int, string, []byte)) {
	q := &request{Call: call, by: o.replica.tracedProcess(), came: o.newest.Load(), query: r.URL.Query(), body: body}
	q.resource, q.subresource, _ = strings.Cut(call.Resource, "/")
	q.ofMetadata = strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList")
	return func(code int, contentType string, answer []byte) {
		isTraced := q.resource == traces.AlertEvents || q.resource == traces.Incidents
		if isTraced && !q.query.Has("dryRun") {
			o.answered(q, code, contentType, answer)
		}
	}
}

// request is a request of a process.
type request struct {
	proxy.Call
	resource, subresource string
	by                    *traces.Process
	came                  int64 // the newest resourceVersion then
	query                 url.Values
	body                  []byte
	ofMetadata            bool
}

func (o *observer) answered(q *request, code int, contentType string, answer []byte) {
	isOK := code == http.StatusOK || code == http.StatusCreated
	switch ofQuorum := !q.query.Has("resourceVersion"); q.Verb {
	case "create", "update", "patch", "delete":
		if isOK || code == 0 || code >= http.StatusInternalServerError {
			o.wrote(objectKey{q.resource, q.Namespace, q.Name}, &sentWrite{
				by: q.by, verb: q.Verb, subresource: q.subresource, body: q.body, isAnswered: isOK,
				over: traces.Over(q.body), revision: o.see(revisionOf(contentType, answer)),
			})
		}
	case "list":
		if isOK && q.resource == traces.AlertEvents && !q.query.Has("continue") {
			o.listed(q.by, q.Namespace, o.see(revisionOf(contentType, answer)), q.ofMetadata, ofQuorum)
		}
	case "get":
		if q.resource == traces.Incidents && ofQuorum && (isOK || code == http.StatusNotFound) {
			o.read(q.by, types.NamespacedName{Namespace: q.Namespace, Name: q.Name}, q.came)
		}
	}
}

func (o *observer) wrote(key objectKey, write *sentWrite) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writes[key] = append(o.writes[key], write)
}

// listed notes a list of AlertEvents. Folds list the metadata from the quorum, and caches whole objects.
func (o *observer) listed(by *traces.Process, namespace string, revision int64, ofMetadata, ofQuorum bool) {
	switch {
	case !ofMetadata:
		o.add(revision, func(*traces.Judge) { by.Shown(namespace, revision, true, noTime) })
	case ofQuorum:
		o.add(revision, func(*traces.Judge) { by.Listed(namespace, revision) })
	}
}

// read notes a read of an Incident from the quorum. Nobody knows of which revision it is: one of those between its coming and its
// answer.
func (o *observer) read(by *traces.Process, name types.NamespacedName, came int64) {
	read := func(j *traces.Judge) { j.Read(by, name, noTime) }
	o.add(came, read)
	if answered := o.newest.Load(); answered != came {
		o.add(answered, read)
	}
}

// noTime is the time of all facts: no clock counts.
var noTime time.Time

// Shown implements proxy.Observer.
func (o *observer) Shown(call proxy.Call, line []byte) {
	var event struct{ Object json.RawMessage }
	if call.Resource != traces.AlertEvents || json.Unmarshal(line, &event) != nil {
		return
	}
	by := o.replica.tracedProcess()
	if revision := o.see(revisionOf("", event.Object)); revision > 0 {
		o.add(revision, func(*traces.Judge) { by.Shown(call.Namespace, revision, false, noTime) })
	}
}

// see returns a revision, and remembers the newest one.
func (t *trace) see(revision int64) int64 {
	for newest := t.newest.Load(); revision > newest; newest = t.newest.Load() {
		if t.newest.CompareAndSwap(newest, revision) {
			break
		}
	}
	return revision
}

func (t *trace) add(after int64, tell func(*traces.Judge)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.facts = append(t.facts, fact{after, tell})
}

// metadataCodecs read the answers to the metadata client.
var metadataCodecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(scheme)
}()

// revisionOf returns the resourceVersion of an object or a list, which is JSON or protobuf; 0 if it has none.
func revisionOf(contentType string, text []byte) int64 {
	version := ""
	if strings.HasPrefix(contentType, runtime.ContentTypeProtobuf) {
		object, _, err := metadataCodecs.UniversalDeserializer().Decode(text, nil, nil)
		if list, ok := object.(metav1.ListInterface); err == nil && ok {
			version = list.GetResourceVersion()
		} else if one, ok := object.(metav1.Object); err == nil && ok {
			version = one.GetResourceVersion()
		}
	} else {
		var meta struct {
			Metadata struct{ ResourceVersion string }
		}
		_ = json.Unmarshal(text, &meta) // else it has none
		version = meta.Metadata.ResourceVersion
	}
	revision, _ := strconv.ParseInt(version, 10, 64)
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

// judge has the model judge what was committed for the tenants.
func (t *trace) judge(commits []commit) (rejected oracle.Findings, steps int, err error) {
	t.mu.Lock()
	facts := slices.Clone(t.facts)
	t.mu.Unlock()
	slices.SortStableFunc(facts, func(a, b fact) int { return cmp.Compare(a.after, b.after) })
	judge := traces.New(traces.Options{LooseClocks: true, LateReads: true})
	last := map[objectKey]commit{}
	for _, c := range commits {
		for len(facts) > 0 && facts[0].after < c.revision {
			facts[0].tell(judge)
			facts = facts[1:]
		}
		key := objectKey{c.Resource, c.Namespace, c.Name}
		if c.Resource != traces.AlertEvents && c.Resource != traces.Incidents {
			continue
		}
		step, err := t.step(key, &c, last[key])
		if err != nil {
			return nil, 0, fmt.Errorf("reading %v of revision %d: %w", key, c.revision, err)
		}
		last[key] = c
		judge.Commit(step)
	}
	return judge.Findings(), judge.Steps(), nil
}

// step returns a commit of an object for the judge. Before it, the object was as the last commit has it.
func (t *trace) step(key objectKey, c *commit, before commit) (*traces.Commit, error) {
	step := &traces.Commit{Revision: c.revision, At: noTime, Type: watch.Modified, Resource: c.Resource}
	switch {
	case c.Created:
		step.Type = watch.Added
	case c.Deleted:
		step.Type, c.Object = watch.Deleted, before.Object
	}
	if err := utiljson.Unmarshal(c.Object, &step.Object); err != nil {
		return nil, err
	}
	setRevision(step.Object, c.revision)
	if w := t.take(key, c, before.revision, step.Object); w != nil {
		step.By, step.Verb, step.Subresource, step.Body = w.by, w.verb, w.subresource, w.body
	}
	return step, nil
}

// setRevision sets the resourceVersion of an object, which etcd's values lack.
func setRevision(object map[string]any, revision int64) {
	if meta, ok := object["metadata"].(map[string]any); ok {
		meta["resourceVersion"] = strconv.FormatInt(revision, 10)
	}
}

// take takes out the write that made a commit of an object, after this revision of it: the one whose answer says so, or one
// without an answer that could have. Nil: a user, or the API server, made it.
func (t *trace) take(key objectKey, c *commit, before int64, object map[string]any) *sentWrite {
	t.mu.Lock()
	defer t.mu.Unlock()
	writes, maybe := t.writes[key], -1
	for i, w := range writes {
		isSame, could := w.revision == c.revision && w.over != c.revision, w.over == before
		switch {
		case c.Created:
			could = true
		case c.Deleted:
			isSame = names(w.body, object)
			could = isSame
		}
		if (w.verb == "create") != c.Created || (w.verb == "delete") != c.Deleted || !isSame && (w.isAnswered || !could) {
			continue
		}
		if maybe = i; isSame && w.isAnswered {
			break
		}
	}
	if maybe < 0 {
		return nil
	}
	w := writes[maybe]
	t.writes[key] = slices.Delete(writes, maybe, maybe+1)
	return w
}

// names reports whether a request deletes this object, by its UID, or whichever has the name.
func names(body []byte, object map[string]any) bool {
	var options metav1.DeleteOptions
	_ = json.Unmarshal(body, &options) // else it has no preconditions
	meta, _ := object["metadata"].(map[string]any)
	return options.Preconditions == nil || options.Preconditions.UID == nil || string(*options.Preconditions.UID) == meta["uid"]
}
