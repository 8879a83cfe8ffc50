package fair

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// smallPart is the part of a Space, one in so many, that a namespace may hold when three quarters are taken.
const smallPart = 32

// Space bounds the bytes that requests hold at a time. A namespace may hold half of them and an integration a quarter, so
// that a sender with many slow connections leaves capacity for the others. The last quarter is for namespaces that hold little,
// so that storms in a few refuse nobody else's requests.
type Space struct {
	total int64

	mu    sync.Mutex
	held  map[types.NamespacedName]int64 // by integration, by namespace (without a name) and in total (without either)
	freed chan struct{}                  // closed when memory is released; nil while nobody waits
}

// Reservation is the memory that one request holds. Nil holds none.
type Reservation struct {
	space  *Space
	sender types.NamespacedName
	size   int64
}

// NewSpace returns a Space of so many bytes.
func NewSpace(total int64) *Space {
	return &Space{total: total, held: map[types.NamespacedName]int64{}}
}

// Reserve reserves size bytes for a request of the integration, and waits for them until the timeout. It returns nil when
// they are not available. A request that is alone in its integration, in its namespace or in total is admitted there,
// however large it is: or a limit of bodies above a share would refuse everybody.
func (s *Space) Reserve(sender types.NamespacedName, size int64, timeout time.Duration) *Reservation {
	var expired <-chan time.Time
	for {
		reservation, freed := s.reserve(sender, size)
		switch {
		case reservation != nil || timeout <= 0:
			return reservation
		case expired == nil:
			expired = time.After(timeout)
		}
		select {
		case <-freed:
		case <-expired:
			return nil
		}
	}
}

func (s *Space) reserve(sender types.NamespacedName, size int64) (reservation *Reservation, freed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, ok := s.allows(sender, size)
	if !ok {
		if s.freed == nil {
			s.freed = make(chan struct{})
		}
		return nil, s.freed
	}
	for i, level := range levels(sender) {
		s.held[level] = held[i] + size
	}
	return &Reservation{s, sender, size}, nil
}

// Allows reports whether a request of the integration could reserve size bytes now.
func (s *Space) Allows(sender types.NamespacedName, size int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.allows(sender, size)
	return ok
}

// allows returns also what each level holds.
func (s *Space) allows(sender types.NamespacedName, size int64) (held [3]int64, ok bool) {
	for i, level := range levels(sender) {
		if held[i] = s.held[level]; held[i] > 0 && held[i]+size > s.total>>i {
			return held, false
		}
	}
	return held, held[1] == 0 || held[1]+size <= s.total/smallPart || held[0]+size <= s.total/4*3
}

// levels returns the keys under which the memory of an integration counts: in total, its namespace's and its own. Each may
// hold half as much as the one before.
func levels(sender types.NamespacedName) [3]types.NamespacedName {
	return [3]types.NamespacedName{{}, {Namespace: sender.Namespace}, sender}
}

// Shrink releases all but size bytes.
func (r *Reservation) Shrink(size int64) {
	if r == nil || size >= r.size {
		return
	}
	s := r.space
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, level := range levels(r.sender) {
		if left := s.held[level] - r.size + size; left > 0 {
			s.held[level] = left
		} else {
			delete(s.held, level)
		}
	}
	r.size = size
	if s.freed != nil {
		close(s.freed)
		s.freed = nil
	}
}

// Release releases the memory. A second call does nothing.
func (r *Reservation) Release() { r.Shrink(0) }
