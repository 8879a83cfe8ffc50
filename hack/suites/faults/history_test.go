//go:build slow

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
)

const (
	// registry is where etcd keeps Tocsin's objects.
	registry = "/registry/tocsin.dev/"

	// sentinel is a key behind them that no API server looks at.
	sentinel = registry + "~"
)

// revision writes the sentinel and returns the revision of that write.
func (r *rig) revision() int64 {
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	r.Must(r.CallEtcd(r.Context, "/v3/kv/put", map[string]any{"key": []byte(sentinel), "value": []byte("now")}, &answer))
	return answer.Header.Revision
}

// commits returns what was committed after the revision, until now, from etcd itself, past all API servers and caches: every
// version of every object, in commit order.
func (r *rig) commits(revision int64) (all []oracle.Commit) {
	until := r.revision()
	ctx, cancel := context.WithCancel(r.Context)
	defer cancel()
	watch, err := json.Marshal(map[string]any{"create_request": map[string]any{
		"key": []byte(registry), "range_end": []byte(sentinel + "~"), "start_revision": strconv.FormatInt(revision+1, 10),
	}})
	r.Must(err)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.EtcdURL+"/v3/watch", bytes.NewReader(watch))
	r.Must(err)
	response, err := http.DefaultClient.Do(request)
	r.Must(err)
	defer func() { _ = response.Body.Close() }()
	for decoder := json.NewDecoder(response.Body); ; {
		var message watchMessage
		r.Must(decoder.Decode(&message))
		if message.Result.Canceled {
			r.T.Fatalf("etcd ended the watch: %s", message.Result.CancelReason)
		}
		for _, event := range message.Result.Events {
			if event.KV.ModRevision >= until {
				return all
			}
			if c, ok := event.commit(); ok {
				all = append(all, c)
			}
		}
	}
}

// watchMessage is the part of etcd's WatchResponse that is needed.
type watchMessage struct {
	Result struct {
		Canceled     bool        `json:"canceled"`
		CancelReason string      `json:"cancel_reason"`
		Events       []etcdEvent `json:"events"`
	} `json:"result"`
}

type etcdEvent struct {
	Type string `json:"type"`
	KV   struct {
		Key            []byte `json:"key"`
		Value          []byte `json:"value"`
		ModRevision    int64  `json:"mod_revision,string"`
		CreateRevision int64  `json:"create_revision,string"`
	} `json:"kv"`
}

// commit is false unless the event is a version of an object of Tocsin.
func (e *etcdEvent) commit() (c oracle.Commit, ok bool) {
	parts := strings.Split(strings.TrimPrefix(string(e.KV.Key), registry), "/")
	if len(parts) != 3 {
		return c, false
	}
	return oracle.Commit{
		Deleted:   e.Type == "DELETE",
		Created:   e.KV.CreateRevision == e.KV.ModRevision,
		Resource:  parts[0],
		Namespace: parts[1],
		Name:      parts[2],
		Object:    e.KV.Value,
	}, true
}

// readHistory gives the oracle what etcd committed for the tenants since the run began. etcd does not know who
// wrote something. The operator deletes no Incident here: none is old enough, and no namespace has too many.
func (r *run) readHistory() *oracle.History {
	history := oracle.NewHistory(r.options)
	for _, c := range r.commits(r.since) {
		if slices.ContainsFunc(r.tenants, func(t tenant) bool { return t.namespace == c.Namespace }) {
			c.ByUser = c.Resource == "incidents" && c.Deleted
			history.Commit(c)
		}
	}
	return history
}

func (r *rig) etcdSize() int64 {
	var answer struct {
		Size int64 `json:"dbSize,string"`
	}
	r.Must(r.CallEtcd(r.Context, "/v3/maintenance/status", map[string]any{}, &answer))
	return answer.Size
}

// disarm ends etcd's alarm that there is no space.
func (r *rig) disarm() {
	var answer struct {
		Alarms []map[string]any `json:"alarms"`
	}
	const path = "/v3/maintenance/alarm"
	r.Must(r.CallEtcd(r.Context, path, map[string]any{"action": "GET"}, &answer))
	for _, alarm := range answer.Alarms {
		alarm["action"] = "DEACTIVATE"
		r.Must(r.CallEtcd(r.Context, path, alarm, &struct{}{}))
	}
}
