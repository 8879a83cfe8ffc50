package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// etcdHistory reads what was committed from etcd itself, past all API servers and caches: every version
// of every object, in commit order.
type etcdHistory struct{ url string }

// revision writes the sentinel and returns the revision of that write.
func (h *etcdHistory) revision(ctx context.Context) (int64, error) {
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	err := h.call(ctx, "/v3/kv/put", map[string]any{"key": encode(sentinel), "value": encode("now")}, func(body io.Reader) error {
		return json.NewDecoder(body).Decode(&answer)
	})
	return answer.Header.Revision, err
}

// since returns everything that was committed after the revision, until now.
func (h *etcdHistory) since(ctx context.Context, revision int64) ([]oracle.Commit, error) {
	until, err := h.revision(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all []oracle.Commit
	request := map[string]any{"create_request": map[string]any{
		"key": encode(registry), "range_end": encode(sentinel + "~"), "start_revision": strconv.FormatInt(revision+1, 10),
	}}
	err = h.call(ctx, "/v3/watch", request, func(body io.Reader) error {
		decoder := json.NewDecoder(body)
		for {
			var message watchMessage
			if err := decoder.Decode(&message); err != nil {
				return err
			}
			if message.Result.Canceled {
				return fmt.Errorf("etcd ended the watch: %s", message.Result.CancelReason)
			}
			for _, event := range message.Result.Events {
				if event.KV.ModRevision >= until {
					return nil
				}
				if c, ok := event.commit(); ok {
					all = append(all, c)
				}
			}
		}
	})
	return all, err
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

// readHistory gives the oracle what etcd committed for the tenants since the revision. etcd does not know who wrote
// something. The operator deletes no Incident here: none is old enough, and no namespace has too many.
func (r *run) readHistory(ctx context.Context, since int64) (*oracle.History, error) {
	commits, err := r.history.since(ctx, since)
	if err != nil {
		return nil, fmt.Errorf("reading etcd's history: %w", err)
	}
	history := oracle.NewHistory(r.options)
	for _, c := range commits {
		if slices.ContainsFunc(r.tenants, func(t tenant) bool { return t.namespace == c.Namespace }) {
			c.ByUser = c.Resource == "incidents" && c.Deleted
			history.Commit(c)
		}
	}
	return history, nil
}

// size is the size of etcd's database in bytes.
func (h *etcdHistory) size(ctx context.Context) (int64, error) {
	var answer struct {
		Size int64 `json:"dbSize,string"`
	}
	err := h.call(ctx, "/v3/maintenance/status", map[string]any{}, func(body io.Reader) error {
		return json.NewDecoder(body).Decode(&answer)
	})
	return answer.Size, err
}

// put stores a value outside of the API servers' keys.
func (h *etcdHistory) put(ctx context.Context, key string, value []byte) error {
	return h.call(ctx, "/v3/kv/put", map[string]any{"key": encode(key), "value": value}, func(io.Reader) error { return nil })
}

// disarm ends etcd's alarm that there is no space.
func (h *etcdHistory) disarm(ctx context.Context) error {
	var answer struct {
		Alarms []map[string]any `json:"alarms"`
	}
	const path = "/v3/maintenance/alarm"
	err := h.call(ctx, path, map[string]any{"action": "GET"}, func(body io.Reader) error {
		return json.NewDecoder(body).Decode(&answer)
	})
	for _, alarm := range answer.Alarms {
		alarm["action"] = "DEACTIVATE"
		err = errors.Join(err, h.call(ctx, path, alarm, func(io.Reader) error { return nil }))
	}
	return err
}

// call posts to etcd's JSON gateway.
func (h *etcdHistory) call(ctx context.Context, path string, body any, read func(io.Reader) error) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+path, bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		said, err := io.ReadAll(io.LimitReader(response.Body, 512))
		return errors.Join(fmt.Errorf("etcd answers %d: %s", response.StatusCode, said), err)
	}
	return read(response.Body)
}

func encode(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
