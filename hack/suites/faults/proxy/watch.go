package proxy

import (
	"bufio"
	"bytes"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// maxWatchLine bounds one event of a watch.
const maxWatchLine = 8 << 20

// watchGate is what the watches of Tocsin's resources pass through.
type watchGate struct {
	mu      sync.Mutex
	changed *sync.Cond
	frozen  map[string]bool // by resource
	shuffle time.Duration   // how late some creations come
	open    map[*watch]struct{}
}

// watch is one watch that passes.
type watch struct {
	resource string
	stalled  bool // nothing passes, until its watcher hangs up

	ended   bool          // nothing more may pass
	expired chan struct{} // closed when it is to end as expired
}

func (g *watchGate) init() {
	g.changed = sync.NewCond(&g.mu)
	g.open = map[*watch]struct{}{}
	g.frozen = map[string]bool{}
}

// FreezeWatches holds back all events of watches of these resources, or lets them go.
func (p *Proxy) FreezeWatches(frozen bool, resources ...string) {
	p.watches.change(func(g *watchGate) {
		for _, resource := range resources {
			g.frozen[resource] = frozen
		}
	})
}

// StallWatches lets the watches of a resource that are open stall: they stay open and show nothing any more. New ones do.
func (p *Proxy) StallWatches(resource string) {
	p.watches.change(func(g *watchGate) {
		for w := range g.open {
			w.stalled = w.stalled || w.resource == resource
		}
	})
}

// ShuffleWatches delivers one creation in ten so much later than what came after it. No API server does
// that, but a client that lists anew may see objects in any order.
func (p *Proxy) ShuffleWatches(late time.Duration) {
	p.watches.change(func(g *watchGate) { g.shuffle = late })
}

// ExpireWatches ends all watches with 410 Expired, so that their clients list anew.
func (p *Proxy) ExpireWatches() {
	p.watches.change(func(g *watchGate) {
		for w := range g.open {
			g.expire(w)
		}
	})
}

func (g *watchGate) change(change func(*watchGate)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(g)
	g.changed.Broadcast()
}

func (g *watchGate) expire(w *watch) {
	if !w.ended {
		w.ended = true
		close(w.expired)
	}
}

// pass copies a watch line by line, and calls shown for each.
func (g *watchGate) pass(w http.ResponseWriter, r *http.Request, call Call, response *http.Response, shown func(line []byte)) {
	maps.Copy(w.Header(), response.Header)
	w.WriteHeader(http.StatusOK)
	flusher := http.NewResponseController(w)
	_ = flusher.Flush()

	state := &watch{resource: call.Resource, expired: make(chan struct{})}
	g.change(func(g *watchGate) { g.open[state] = struct{}{} })
	defer g.change(func(g *watchGate) {
		state.ended = true
		delete(g.open, state)
	})
	// A watcher that hangs up must not leave this one waiting for a thaw.
	defer func() { _ = response.Body.Close() }()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-r.Context().Done():
			g.change(func(*watchGate) { state.ended = true })
		case <-stop:
		}
	}()

	lines := make(chan []byte, 1<<14)
	late := make(chan []byte, 1<<14)
	go readLines(response, lines, stop)
	for {
		select {
		case <-state.expired:
			_, _ = w.Write(append(append([]byte(`{"type":"ERROR","object":`), statusObject(http.StatusGone)...), '}', '\n'))
			_ = flusher.Flush()
			return
		case <-r.Context().Done():
			return
		case line := <-late:
			if !g.write(w, state, call, line, shown) {
				return
			}
		case line, ok := <-lines:
			if !ok {
				return
			}
			if delay := g.lateness(call, line); delay > 0 {
				time.AfterFunc(delay, func() { late <- line })
			} else if !g.write(w, state, call, line, shown) {
				return
			}
		}
	}
}

// write writes a line if it may pass. It is false when the watcher is gone.
func (g *watchGate) write(w http.ResponseWriter, state *watch, call Call, line []byte, shown func(line []byte)) bool {
	if !g.admit(state, call) {
		return true
	}
	if _, err := w.Write(line); err != nil {
		return false
	}
	_ = http.NewResponseController(w).Flush()
	shown(line)
	return true
}

// lateness is how much later than the others a line comes.
func (g *watchGate) lateness(call Call, line []byte) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if call.Resource != "alertevents" || g.shuffle == 0 || !bytes.Contains(line[:min(32, len(line))], []byte(`"ADDED"`)) ||
		rand.IntN(10) > 0 {
		return 0
	}
	return g.shuffle
}

// readLines sends the lines of a watch. One that is not JSON, such as that of a Lease, has none: what came of it is sent at once.
func readLines(response *http.Response, lines chan<- []byte, stop <-chan struct{}) {
	defer close(lines)
	reader := bufio.NewReaderSize(response.Body, 64<<10)
	read := func() ([]byte, error) { return reader.ReadBytes('\n') }
	if !strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		read = func() ([]byte, error) {
			part := make([]byte, 64<<10)
			n, err := reader.Read(part)
			return part[:n], err
		}
	}
	for {
		line, err := read()
		if len(line) > maxWatchLine {
			return
		}
		if len(line) > 0 {
			select {
			case lines <- line:
			case <-stop:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// admit waits until a line may pass. It is false if none may.
func (g *watchGate) admit(w *watch, call Call) bool {
	if !call.IsTocsin() {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for (g.frozen[call.Resource] || w.stalled) && !w.ended {
		g.changed.Wait()
	}
	return !w.ended
}
