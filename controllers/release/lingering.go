package release

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/internal/fair"
)

const (
	// maxLingering and maxLingeringBytes bound the AlertEvents of one integration that stay for their idempotency keys; beyond them
	// its oldest go early. So an integration with 100 keyed requests a minute has them all for ten minutes.
	maxLingering      = 1000
	maxLingeringBytes = 16 << 20

	// maxAllLingering and maxAllLingeringBytes bound those of all integrations, for they are part of the queue, are held by every
	// replica's cache, and are in every quorum list. Beyond them the oldest go of the integration that has the most.
	maxAllLingering      = 5000
	maxAllLingeringBytes = 64 << 20
)

// lingering is the AlertEvents that are folded and stay for their idempotency keys. Each integration has a share, and when all of
// them together have too many, those of the integration with the most are released first: no sender costs another one its memory.
type lingering struct {
	events, bytes fair.Budget[types.NamespacedName]
	records       map[types.NamespacedName][]*releaseRecord // by integration, oldest first
}

func newLingering() lingering {
	limit := func(all, own float64) fair.Budget[types.NamespacedName] {
		return fair.Budget[types.NamespacedName]{Limit: fair.Limit{All: int64(all), Share: own / all}}
	}
	return lingering{
		events: limit(maxAllLingering, maxLingering), bytes: limit(maxAllLingeringBytes, maxLingeringBytes),
		records: map[types.NamespacedName][]*releaseRecord{},
	}
}

// add enters a record, and takes out and returns those that exceed a limit.
func (l *lingering) add(record *releaseRecord) (early []*releaseRecord) {
	l.records[record.integration] = append(l.records[record.integration], record)
	l.count(record, 1)
	for {
		from, exceeds := l.events.Excess(record.integration)
		if !exceeds {
			from, exceeds = l.bytes.Excess(record.integration)
		}
		if !exceeds {
			return early
		}
		oldest := l.records[from][0]
		l.remove(oldest)
		early = append(early, oldest)
	}
}

// remove takes a record out, if it is in.
func (l *lingering) remove(record *releaseRecord) {
	records := l.records[record.integration]
	at := slices.Index(records, record)
	if at < 0 {
		return
	}
	l.count(record, -1)
	if l.records[record.integration] = slices.Delete(records, at, at+1); len(records) == 1 {
		delete(l.records, record.integration)
	}
}

func (l *lingering) count(record *releaseRecord, sign int64) {
	l.events.Add(record.integration, sign)
	l.bytes.Add(record.integration, sign*int64(record.bytes))
}
