package mapping

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"

	"k8s.io/utils/lru"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// Cache remembers compiled mappings by their content: integrations that have the same preset, and in one namespace the same
// mapping, share a program. When all programs together are larger than maxCacheBytes, it forgets the one that was used least
// recently, of the namespace that has most; so what one namespace does costs no other its programs. Presets are compiled
// once, outside of it. Many goroutines may use it at a time.
type Cache struct {
	correct *lru.Cache // the cacheKeys of mappings that compile, also of those whose programs were forgotten

	mu         sync.Mutex
	namespaces map[string]*namespaceCache
	bytes      fair.Budget[string] // of all programs, by namespace
}

// cacheKey is what a program is made of, and the namespace that it counts for.
type cacheKey struct {
	namespace string
	content   [sha256.Size]byte
}

// cached is a compiled mapping, which nothing changes: others may be reading it.
type cached struct {
	program *Program
	err     error
	bytes   int64
}

type namespaceCache struct {
	compiling sync.Mutex // one mapping of a namespace is compiled at a time: others have the processors too
	programs  *lru.Cache // *cached by cacheKey; the Cache bounds their size
}

var (
	// unusable reads by the payload rules alone, in place of a mapping that does not compile.
	unusable = &Program{broken: true}

	// unknownPreset reads as without a preset, in place of one that this version does not have: during an upgrade, replicas know
	// different presets, and no alert is refused because of it.
	unknownPreset = &Program{broken: true, auto: true}
)

// NewCache makes an empty Cache.
func NewCache() *Cache {
	return &Cache{
		correct:    lru.New(maxVerdicts),
		namespaces: map[string]*namespaceCache{},
		bytes:      fair.Budget[string]{Limit: fair.Limit{All: maxCacheBytes, Share: 1}},
	}
}

// Program returns the compiled mapping of an integration, or else the program of its preset; never nil. If the mapping does not
// compile, the program reads payloads by the payload rules alone, with a warning; the error, as Compile gives it, says why.
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
	namespace := c.namespace(key.namespace)
	if entry := namespace.get(key); entry != nil {
		return entry.program, entry.err
	}
	namespace.compiling.Lock()
	defer namespace.compiling.Unlock()
	if entry := namespace.get(key); entry != nil { // compiled while this waited
		return entry.program, entry.err
	}
	entry := &cached{}
	if entry.program, entry.err = Compile(PresetOf(spec), spec.Mapping); entry.err != nil {
		entry.program = unusable
		entry.bytes = int64(len(entry.err.Error()))
	} else {
		c.correct.Add(key, nil)
	}
	entry.bytes += int64(emptyProgramBytes + entry.program.bytes)
	c.add(key, entry)
	return entry.program, entry.err
}

// Check returns what is wrong with an integration's mapping, each mistake in a line. It does not compile again what has
// compiled once, even if the program was forgotten meanwhile.
func (c *Cache) Check(integration *v1alpha1.WebhookIntegration) error {
	if _, known := c.correct.Get(keyOf(integration)); known {
		return nil
	}
	if _, err := c.Program(integration); err != nil {
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

// get returns the entry of a mapping, if there is one, and marks it as used.
func (n *namespaceCache) get(key cacheKey) *cached {
	found, _ := n.programs.Get(key)
	entry, _ := found.(*cached)
	return entry
}

func (c *Cache) namespace(name string) *namespaceCache {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.namespaces[name] == nil {
		c.namespaces[name] = &namespaceCache{programs: lru.NewWithEvictionFunc(0, func(_ lru.Key, evicted any) {
			entry, _ := evicted.(*cached)
			c.bytes.Add(name, -entry.bytes)
		})}
	}
	return c.namespaces[name]
}

// add remembers an entry, and forgets others for it.
func (c *Cache) add(key cacheKey, entry *cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.namespaces[key.namespace].programs.Add(key, entry)
	c.bytes.Add(key.namespace, entry.bytes)
	for from, exceeds := c.bytes.Excess(key.namespace); exceeds; from, exceeds = c.bytes.Excess(key.namespace) {
		c.namespaces[from].programs.RemoveOldest()
	}
}
