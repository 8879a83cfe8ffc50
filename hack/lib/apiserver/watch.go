package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// bookmarkInterval is the time between two bookmarks of a watch.
const bookmarkInterval = time.Minute

// stream is the body of a watch. It has no goroutine: its reader waits for the next event.
type stream struct {
	*request
	server   *Server
	selected *selection

	initial   []*object // to be sent first
	announce  bool      // the end of the initial events, by a bookmark
	at        int       // position of the next commit in the history
	expired   string    // the message of the only event, if the watch begins too late
	bookmarks time.Time // when the next one is due; zero: never
	end       time.Time // zero: never
	begun     int64     // the revision of the initial events

	again   []event // that come before those of the history: repeated, or out of order
	rewound int64   // the revision up to which the watch does not go back any more

	pending net.Buffers // what is left of the event that is being read
	last    bool        // it is the last one
	closed  chan struct{}
	once    sync.Once
}

// event is one event of a watch.
type event struct {
	kind     watch.EventType
	object   []byte
	revision int64
}

// watch begins a watch.
func (s *Server) watch(r *request) (*reply, error) {
	w := &stream{request: r, server: s, closed: make(chan struct{})}
	var err error
	if w.selected, err = selectionOf(r); err != nil {
		return nil, err
	}
	from, err := revisionOf(r)
	if err != nil {
		return nil, err
	}
	initial, _ := strconv.ParseBool(r.Query.Get("sendInitialEvents"))
	if err := checkOptions(r); err != nil {
		return nil, err
	}
	w.schedule()
	s.mu.Lock()
	defer s.mu.Unlock()
	w.at = r.table.after(from)
	switch {
	case initial || from == 0:
		if err := s.checkReached(from); err != nil {
			return nil, err
		}
		w.announce, w.begun = initial, s.notOlder(r, from)
		w.at = r.table.after(w.begun)
		for _, o := range r.table.snapshot(r.Namespace, w.begun) {
			if w.selected.matches(o) {
				w.initial = append(w.initial, o)
			}
		}
	case from < r.table.expired:
		w.expired = fmt.Sprintf("too old resource version: %d (%d)", from, r.table.expired)
	}
	return &reply{code: http.StatusOK, stream: w}, nil
}

// schedule sets when the watch ends and when its first bookmark is due.
func (w *stream) schedule() {
	now := time.Now()
	timeout := w.server.options.WatchTimeout
	if seconds, _ := strconv.Atoi(w.Query.Get("timeoutSeconds")); seconds > 0 {
		if asked := time.Duration(seconds) * time.Second; timeout == 0 || asked < timeout {
			timeout = asked
		}
	}
	if timeout > 0 {
		w.end = now.Add(timeout)
	}
	if allowed, _ := strconv.ParseBool(w.Query.Get("allowWatchBookmarks")); allowed {
		w.bookmarks = now.Add(bookmarkInterval)
	}
}

// Read implements io.Reader. It returns at most one event at a time, or a part of it.
func (w *stream) Read(p []byte) (int, error) {
	if len(w.pending) == 0 {
		if err := w.next(); err != nil {
			return 0, err
		}
	}
	n, _ := w.pending.Read(p) // its io.EOF is the end of the event
	return n, nil
}

// Close implements io.Closer.
func (w *stream) Close() error {
	w.once.Do(func() { close(w.closed) })
	return nil
}

// next waits for the next event and makes it pending.
func (w *stream) next() error {
	if w.last {
		return io.EOF
	}
	e, err := w.deliver()
	if err != nil {
		return err
	}
	if err := w.ctx.Err(); err != nil {
		return err
	}
	w.last = e.kind == watch.Error
	w.pending = net.Buffers{prefixes[e.kind], e.object, suffix}
	return nil
}

// deliver waits for the next event that comes, after what the faults make of those before it.
func (w *stream) deliver() (event, error) {
	for {
		if len(w.again) > 0 {
			e := w.again[0]
			w.again = w.again[1:]
			return e, nil
		}
		isInitial := len(w.initial) > 0 || w.announce
		e, err := w.wait()
		if err != nil {
			return e, err
		}
		switch err := w.faults.Deliver(w.ctx, w.Call, e.revision); {
		case errors.Is(err, ErrExpired):
			return expiry(fmt.Sprintf("too old resource version: %d", e.revision)), nil
		case err == nil || isInitial && isBreach(err):
			return e, nil
		case !isBreach(err):
			return e, err
		default:
			w.breach(e, err)
		}
	}
}

// isBreach reports whether an error is one of those of a watch that breaks its promise.
func isBreach(err error) bool {
	return errors.Is(err, ErrDropped) || errors.Is(err, ErrRepeated) || errors.Is(err, ErrSwapped) || errors.Is(err, ErrRewound)
}

// rewindBy is how many commits a watch goes back.
const rewindBy = 8

// breach does with an event what breaks the promise of the watch.
func (w *stream) breach(e event, err error) {
	switch {
	case errors.Is(err, ErrRepeated):
		w.again = append(w.again, e, e)
	case errors.Is(err, ErrSwapped):
		if next, _, err := w.poll(); err == nil && next.object != nil {
			w.again = append(w.again, next)
		}
		w.again = append(w.again, e)
	case errors.Is(err, ErrRewound):
		w.again = append(w.again, e)
		if e.revision > w.rewound {
			w.rewound, w.at = e.revision, max(w.at-rewindBy, 0)
		}
	}
}

var (
	prefixes = map[watch.EventType][]byte{
		watch.Added: []byte(`{"type":"ADDED","object":`), watch.Modified: []byte(`{"type":"MODIFIED","object":`),
		watch.Deleted: []byte(`{"type":"DELETED","object":`), watch.Bookmark: []byte(`{"type":"BOOKMARK","object":`),
		watch.Error: []byte(`{"type":"ERROR","object":`),
	}
	suffix = []byte("}\n")
)

// wait returns the next event as soon as there is one.
func (w *stream) wait() (event, error) {
	switch {
	case w.expired != "":
		return expiry(w.expired), nil
	case len(w.initial) > 0:
		o := w.initial[0]
		w.initial = w.initial[1:]
		return event{watch.Added, o.encoded(w.asMetadata), o.revision}, nil
	case w.announce:
		w.announce = false
		return w.bookmark(w.begun, map[string]any{metav1.InitialEventsAnnotationKey: "true"}), nil
	}
	for {
		e, changed, err := w.poll()
		if e.object != nil || err != nil {
			return e, err
		}
		if err := w.sleep(changed); err != nil {
			return event{}, err
		}
	}
}

// poll returns the next event, or what tells of the next commit.
func (w *stream) poll() (event, <-chan struct{}, error) {
	s, t := w.server, w.table
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.at < t.dropped {
		return event{}, nil, io.EOF // too slow: a real server ends the watch, too
	}
	for ; w.at < t.dropped+len(t.history); w.at++ {
		entry := &t.history[w.at-t.dropped]
		if kind, o := w.selected.seen(entry); o != nil {
			w.at++
			return event{kind, o.encoded(w.asMetadata), entry.revision}, nil, nil
		}
	}
	if !w.bookmarks.IsZero() && !time.Now().Before(w.bookmarks) {
		w.bookmarks = time.Now().Add(bookmarkInterval)
		return w.bookmark(s.revision, nil), nil, nil
	}
	return event{}, t.changed, nil
}

// sleep waits for a commit, a bookmark or the end of the watch.
func (w *stream) sleep(changed <-chan struct{}) error {
	now := time.Now()
	until := w.end
	if !w.bookmarks.IsZero() && (until.IsZero() || w.bookmarks.Before(until)) {
		until = w.bookmarks
	}
	var due <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(until.Sub(now))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-changed:
	case <-due:
		if !w.end.IsZero() && !time.Now().Before(w.end) {
			return io.EOF
		}
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	case <-w.closed:
		return errors.New("read on closed response body")
	}
	return nil
}

// bookmark returns an event that tells only the resourceVersion.
func (w *stream) bookmark(revision int64, annotations map[string]any) event {
	meta := map[string]any{"resourceVersion": strconv.FormatInt(revision, 10)}
	if annotations != nil {
		meta["annotations"] = annotations
	}
	content := map[string]any{"kind": w.table.Kind, "apiVersion": w.table.GroupVersion().String(), "metadata": meta}
	return event{watch.Bookmark, encodeAs(content, w.asMetadata), revision}
}

// expiry returns the event that ends a watch of a state that is gone.
func expiry(message string) event {
	return event{watch.Error, failed(apierrors.NewResourceExpired(message)).body, 0}
}
