package mapping

import (
	"sync"

	k8stypes "k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// maxCached is how many compiled mappings are remembered. Beyond it some are forgotten, to be compiled
// again when they are needed.
const maxCached = 1000

// Cache remembers the compiled mapping of each integration, for as long as its spec does not change. The
// zero value is ready for use, by many goroutines at a time.
type Cache struct {
	mu       sync.Mutex
	programs map[k8stypes.NamespacedName]*cached
}

// cached is the mapping of one generation of an integration.
type cached struct {
	uid        k8stypes.UID
	generation int64
	compile    sync.Once
	program    *Program
	err        error
}

// plain reads by the payload rules alone.
var plain = &Program{}

// Program is the compiled mapping of an integration. It is never nil: without a mapping, and with one that
// does not compile, it reads payloads by the payload rules alone, in the latter case with a warning. The
// error, as Compile gives it, says why that is.
func (c *Cache) Program(integration *v1alpha1.WebhookIntegration) (*Program, error) {
	spec := &integration.Spec
	if spec.Preset == "" && spec.Mapping == nil {
		return plain, nil
	}
	entry := c.entry(integration)
	entry.compile.Do(func() {
		entry.program, entry.err = Compile(spec.Preset, spec.Mapping)
		if entry.err != nil {
			broken := *plain
			broken.broken = true
			entry.program = &broken
		}
	})
	return entry.program, entry.err
}

// entry finds or makes the entry of an integration.
func (c *Cache) entry(integration *v1alpha1.WebhookIntegration) *cached {
	key := k8stypes.NamespacedName{Namespace: integration.Namespace, Name: integration.Name}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.programs == nil {
		c.programs = map[k8stypes.NamespacedName]*cached{}
	}
	entry := c.programs[key]
	if entry != nil && entry.uid == integration.UID && entry.generation == integration.Generation {
		return entry
	}
	if entry == nil && len(c.programs) >= maxCached {
		for one := range c.programs {
			delete(c.programs, one)
			break
		}
	}
	entry = &cached{uid: integration.UID, generation: integration.Generation}
	c.programs[key] = entry
	return entry
}
