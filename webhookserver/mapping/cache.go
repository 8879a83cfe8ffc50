package mapping

import (
	lru "container/list"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"maps"
	"sync"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// Cache remembers compiled mappings by their content: integrations that have the same preset, and in one namespace the same
// mapping, share a program. When all programs together are larger than maxCacheBytes, it forgets the one that was used least
// recently, of the namespace that has most; so what one namespace does costs no other its programs. Presets are compiled
// once, outside of it. The zero value is ready for use, by many goroutines at a time.
type Cache struct {
	mu         sync.Mutex
	entries    map[cacheKey]*cached
	namespaces map[string]*cacheShare
	bytes      fair.Budget[string] // of all programs, by namespace
}

// cacheKey is what a program is made of, and the namespace that it counts for.
type cacheKey struct {
	namespace string
	content   [sha256.Size]byte
}

// cached is a compiled mapping, which nothing changes: others may be reading it.
type cached struct {
	key     cacheKey
	program *Program // nil when it was forgotten; that it compiles is still known
	err     error
	bytes   int
	place   *lru.Element // among those of its namespace
}

// cacheShare is what a namespace has in the cache.
type cacheShare struct {
	compiling sync.Mutex // one mapping of a namespace is compiled at a time: others have the processors too
	used      lru.List   // of *cached, the one used last in front
}

var (
	// unusable reads by the payload rules alone, in place of a mapping that does not compile.
	unusable = &Program{broken: true}

	// unknownPreset reads as without a preset, in place of one that this version does not have: during an upgrade, replicas know
	// different presets, and no alert is refused because of it.
	unknownPreset = &Program{broken: true, auto: true}
)

// Program returns the compiled mapping of an integration. It is never nil: without a mapping, and with one that
// does not compile, it reads payloads by the payload rules alone, in the latter case with a warning. The
// error, as Compile gives it, says why that is.
func (c *Cache) Program(integration *v1alpha1.WebhookIntegration) (*Program, error) {
	spec := &integration.Spec
	if spec.Mapping == nil {
		program, err := Compile(PresetOf(spec), nil) // a preset is compiled once
		if err != nil {
			program = unknownPreset
		}
		return program, err
	}
	key := keyOf(integration)
	if entry := c.use(key); entry != nil {
		return entry.program, entry.err
	}
	share := c.share(key.namespace)
	share.compiling.Lock()
	defer share.compiling.Unlock()
	if entry := c.use(key); entry != nil { // compiled while this waited
		return entry.program, entry.err
	}
	entry := &cached{key: key}
	if entry.program, entry.err = Compile(PresetOf(spec), spec.Mapping); entry.err != nil {
		entry.program = unusable
		entry.bytes = len(entry.err.Error())
	}
	entry.bytes += emptyProgramBytes + entry.program.size()
	c.add(share, entry)
	return entry.program, entry.err
}

// Check returns what is wrong with an integration's mapping, each mistake in a line. It does not compile again what was
// compiled once, even if the program was forgotten meanwhile.
func (c *Cache) Check(integration *v1alpha1.WebhookIntegration) (err error) {
	c.mu.Lock()
	known := c.entries[keyOf(integration)]
	c.mu.Unlock()
	if known != nil {
		err = known.err
	} else {
		_, err = c.Program(integration)
	}
	if err != nil {
		return errors.New(plaintext.SanitizeText(err.Error()))
	}
	return nil
}

func keyOf(integration *v1alpha1.WebhookIntegration) cacheKey {
	content, _ := json.Marshal(struct { // a mapping is made of strings, so it has JSON
		Preset  string
		Mapping *v1alpha1.Mapping
	}{integration.Spec.Preset, integration.Spec.Mapping})
	return cacheKey{namespace: integration.Namespace, content: sha256.Sum256(content)}
}

// use returns the entry with a program, if there is one, and marks it as used.
func (c *Cache) use(key cacheKey) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.entries[key]
	if entry == nil || entry.program == nil {
		return nil
	}
	c.namespaces[key.namespace].used.MoveToFront(entry.place)
	return entry
}

func (c *Cache) share(namespace string) *cacheShare {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.namespaces == nil {
		c.entries, c.namespaces = map[cacheKey]*cached{}, map[string]*cacheShare{}
		c.bytes.Limit = fair.Limit{All: maxCacheBytes, Share: 1}
	}
	share := c.namespaces[namespace]
	if share == nil {
		share = &cacheShare{}
		c.namespaces[namespace] = share
	}
	return share
}

// add remembers an entry of a namespace, and forgets other programs for it.
func (c *Cache) add(share *cacheShare, entry *cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry.place = share.used.PushFront(entry)
	c.bytes.Add(entry.key.namespace, int64(entry.bytes))
	if len(c.entries) >= maxVerdicts {
		maps.DeleteFunc(c.entries, func(_ cacheKey, e *cached) bool { return e.program == nil })
	}
	c.entries[entry.key] = entry
	for from, exceeds := c.bytes.Excess(entry.key.namespace); exceeds; from, exceeds = c.bytes.Excess(entry.key.namespace) {
		c.forget(from)
	}
}

// forget drops the program of a namespace that was used least recently.
func (c *Cache) forget(namespace string) {
	used := &c.namespaces[namespace].used
	entry, _ := used.Remove(used.Back()).(*cached)
	c.bytes.Add(namespace, -int64(entry.bytes))
	delete(c.entries, entry.key)
	if entry.err == nil { // mistakes are found again quickly
		c.entries[entry.key] = &cached{key: entry.key}
	}
}

// size estimates how many bytes the program takes beside those of its preset; a test compares it with what is allocated.
func (p *Program) size() int {
	total := 0
	for _, e := range p.expressions {
		if e != nil && e.preset == "" {
			total += e.bytes
		}
	}
	return total
}
