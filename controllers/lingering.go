package controllers

import (
	"container/list"

	"k8s.io/apimachinery/pkg/types"
)

// lingering is the AlertEvents that are folded and stay for their idempotency keys. Each integration has a bound of its
// own, and when all of them together have too many, those of the integration with the most are released first:
// no sender costs another one its memory.
type lingering struct {
	integrations map[types.NamespacedName]*lingeringQueue
	events       int
	bytes        int
}

// lingeringQueue is an integration's part, oldest first.
type lingeringQueue struct {
	records *list.List // of *releaseRecord
	bytes   int
}

// add enters a record, and takes out and returns those that exceed a limit.
func (l *lingering) add(record *releaseRecord) (early []*releaseRecord) {
	if l.integrations == nil {
		l.integrations = map[types.NamespacedName]*lingeringQueue{}
	}
	queue := l.integrations[record.integration]
	if queue == nil {
		queue = &lingeringQueue{records: list.New()}
		l.integrations[record.integration] = queue
	}
	record.linger = queue.records.PushBack(record)
	queue.bytes += record.bytes
	l.events++
	l.bytes += record.bytes
	for queue.records.Len() > maxLingering || queue.bytes > maxLingeringBytes {
		early = append(early, l.removeOldest(queue))
	}
	for l.events > maxAllLingering {
		early = append(early, l.removeOldest(l.largest(func(q *lingeringQueue) int { return q.records.Len() })))
	}
	for l.bytes > maxAllLingeringBytes {
		early = append(early, l.removeOldest(l.largest(func(q *lingeringQueue) int { return q.bytes })))
	}
	return early
}

// remove takes a record out, if it is in.
func (l *lingering) remove(record *releaseRecord) {
	if record.linger == nil {
		return
	}
	queue := l.integrations[record.integration]
	queue.records.Remove(record.linger)
	record.linger = nil
	queue.bytes -= record.bytes
	l.events--
	l.bytes -= record.bytes
	if queue.records.Len() == 0 {
		delete(l.integrations, record.integration)
	}
}

func (l *lingering) removeOldest(queue *lingeringQueue) *releaseRecord {
	oldest, ok := queue.records.Front().Value.(*releaseRecord)
	if !ok {
		panic("a lingering record of another type") // only add puts them in
	}
	l.remove(oldest)
	return oldest
}

// largest is the integration's part that has the most.
func (l *lingering) largest(size func(*lingeringQueue) int) *lingeringQueue {
	var largest *lingeringQueue
	for _, queue := range l.integrations {
		if largest == nil || size(queue) > size(largest) {
			largest = queue
		}
	}
	return largest
}
