package v1alpha1

import (
	"slices"
	"sync"
)

// unpacked holds alerts that were unpacked a moment ago, by their packedAlerts. A watch shows each AlertEvent twice, when it
// is created and when it is deleted; to unpack it again would cost as much as the first time.
var unpacked unpackedAlerts

// unpackedAlerts is a first-in, first-out memory of a limited size.
type unpackedAlerts struct {
	mu     sync.Mutex
	limit  int // bytes of packed and unpacked JSON; 0: nothing is kept
	bytes  int
	alerts map[string][]Alert
	order  []keptAlerts
}

type keptAlerts struct {
	packed string
	bytes  int
}

// KeepUnpackedAlerts has this process keep the alerts that were unpacked last, up to so many bytes of JSON; by default it
// keeps none. AlertEvents with equal packedAlerts then share the bags of their alerts, so bags must not be modified in
// place, as in objects from a cache.
func KeepUnpackedAlerts(bytes int) {
	unpacked.mu.Lock()
	defer unpacked.mu.Unlock()
	unpacked.limit = bytes
	unpacked.evict()
}

func (u *unpackedAlerts) get(packed string) ([]Alert, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	alerts, ok := u.alerts[packed]
	return slices.Clone(alerts), ok
}

// add keeps alerts whose JSON has so many bytes.
func (u *unpackedAlerts) add(packed string, alerts []Alert, bytes int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.alerts[packed]; ok || u.limit == 0 {
		return
	}
	if u.alerts == nil {
		u.alerts = map[string][]Alert{}
	}
	kept := keptAlerts{packed, bytes + len(packed)}
	u.alerts[packed] = slices.Clone(alerts)
	u.order = append(u.order, kept)
	u.bytes += kept.bytes
	u.evict()
}

func (u *unpackedAlerts) evict() {
	for u.bytes > u.limit {
		oldest := u.order[0]
		u.order = u.order[1:]
		u.bytes -= oldest.bytes
		delete(u.alerts, oldest.packed)
	}
}
