package apiserver

import (
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// defaultHistory is how many commits of a resource are kept by default.
const defaultHistory = 10_000

// Options say what a Server serves.
type Options struct {
	// Definitions are the custom resources. Reading them takes much longer than New.
	Definitions *Definitions
	// UID returns the next UID. It is called under the server's lock. Default: ascending numbers in the form of a UUID.
	UID func() types.UID
	// History is how many commits of each resource are kept for watches and pages; what is older gets 410 Expired.
	// Default: 10,000. Up to twice as many may be kept.
	History int
	// WatchTimeout ends each watch after this time, if its client does not ask for an earlier end. client-go asks for a random time
	// from 5 to 10 minutes: with 5 minutes, chance decides nothing. Default: as the client asks.
	WatchTimeout time.Duration
	// Now is the time of the server's clock, which is in objects and answers. Default: time.Now.
	Now func() time.Time
}

// Server is an API server in memory.
type Server struct {
	options Options

	mu         sync.Mutex
	revision   int64
	uids       uint64
	names      uint64
	tables     []*table // in a constant order
	quotas     map[types.NamespacedName]map[string]int64
	denials    map[string]denial
	terminates map[string]bool // namespaces whose content was deleted
	// unpublished are the paths of the properties that published schemas lack, by kind.
	unpublished map[string][]string
	documents   map[string][]byte // OpenAPI documents, by path
	observers   []func(Commit)
}

// New returns a server with the namespaces default, kube-system and kube-public.
func New(options Options) (*Server, error) {
	if options.Definitions == nil {
		options.Definitions = &Definitions{}
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.History <= 0 {
		options.History = defaultHistory
	}
	s := &Server{
		options: options, quotas: map[types.NamespacedName]map[string]int64{},
		denials: map[string]denial{}, terminates: map[string]bool{},
		unpublished: map[string][]string{}, documents: map[string][]byte{},
	}
	seen := map[string]bool{}
	for _, r := range append(builtin(), options.Definitions.resources...) {
		if seen[r.qualified()] {
			return nil, fmt.Errorf("the resource %s is defined twice", r.qualified())
		}
		seen[r.qualified()] = true
		s.tables = append(s.tables, &table{resource: r, changed: make(chan struct{})})
	}
	s.CreateNamespaces(metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic)
	return s, nil
}

// Config returns the configuration of one client, without a rate limit.
func (s *Server) Config(client string, faults Faults) *rest.Config {
	return &rest.Config{Host: "http://apiserver", Transport: s.Transport(client, faults), QPS: -1}
}

// table returns the table of a resource by its group, version and plural name, or nil.
func (s *Server) table(group, version, plural string) *table {
	for _, t := range s.tables {
		if t.plural == plural && t.Group == group && t.Version == version {
			return t
		}
	}
	return nil
}

// Commit is one write, as an observer sees it.
type Commit struct {
	Revision int64
	Type     watch.EventType // ADDED, MODIFIED or DELETED
	Resource string          // plural.group, such as incidents.tocsin.dev or configmaps
	Object   map[string]any  // read-only: the state afterwards, or the last one of a deleted object
	JSON     []byte          // read-only: the same, encoded
	Old      map[string]any  // read-only: the state before; nil for ADDED
	Client   string          // empty if the server did it
	Call     *Call           // the request; nil if there was none
	Faults   Faults          // of the client; nil if the server did it
}

// OnCommit calls observe with each commit, in order, under the server's lock: it must not call the server.
func (s *Server) OnCommit(observe func(Commit)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observers = append(s.observers, observe)
}

// commit stores a new state of an object, or its deletion, and returns it. The lock is held. Of a deletion, content is the last
// state. The request is by, nil if the server does it.
func (s *Server) commit(t *table, kind watch.EventType, content map[string]any, old *object, by *request) *object {
	s.revision++
	e := entry{revision: s.revision, kind: kind, old: old}
	if kind == watch.Deleted {
		e.object = old.at(s.revision)
	} else {
		e.object = newObject(t.resource, content, s.revision)
	}
	t.apply(e, s.options.History)
	c := Commit{Revision: s.revision, Type: kind, Resource: t.qualified(), Object: e.object.content, JSON: e.object.full}
	if by != nil {
		c.Client, c.Call, c.Faults = by.Client, by.Call, by.faults
	}
	if old != nil {
		c.Old = old.content
	}
	for _, observe := range s.observers {
		observe(c)
	}
	switch {
	case kind == watch.Deleted && t.namespaced:
		s.finishNamespace(old.namespace)
	case kind == watch.Deleted:
		delete(s.terminates, old.name)
	}
	return e.object
}

// nextUID returns the UID of a new object.
func (s *Server) nextUID() types.UID {
	if s.options.UID != nil {
		return s.options.UID()
	}
	s.uids++
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.uids))
}

// suffix returns the end of a generated name: five of the characters that Kubernetes uses.
func (s *Server) suffix() string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	s.names++
	suffix := make([]byte, 5)
	for i, n := 0, s.names*0x9e3779b97f4a7c15>>16; i < len(suffix); i++ {
		suffix[i] = alphabet[n%uint64(len(alphabet))]
		n /= uint64(len(alphabet))
	}
	return string(suffix)
}
