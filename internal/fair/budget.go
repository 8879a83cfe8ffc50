package fair

import (
	"iter"
	"maps"
)

// DefaultShare is the part of a limit that one key may use by default.
const DefaultShare = 0.25

// minimumPart is the part of a limit, one in so many, that every key may always use.
const minimumPart = 2000

// Limit bounds what all keys use together. Share is the part of it that one key may use, from 0 to 1.
type Limit struct {
	All   int64
	Share float64
}

// Own returns how much one key may use, at least 1.
func (l Limit) Own() int64 { return max(1, int64(float64(l.All)*l.Share)) }

// Allows reports whether a key that uses own may use more, while so many keys, this one included, use all together.
//
// Below the limit, a key may use its share. Above the limit, there is a reserve of half the limit, and a key may use an equal
// part of the remaining reserve: keys that filled the limit are rejected, and the others are not. Every key may always use
// 1/minimumPart of the limit. All together use at most one and a half times the limit plus these minima.
func (l Limit) Allows(own, all int64, keys int) bool {
	reserve := l.All + l.All/2 - all
	return l.Fits(own, all, keys) && (all < l.All || own <= l.All/minimumPart || own*int64(keys) < reserve)
}

// Fits reports whether one more of a key is within the bounds that Allows keeps: its share, and what all together use at most.
// What Allows has admitted by the same counts fits, in whatever order it is used, and whatever Allows has admitted since then for
// other keys.
func (l Limit) Fits(own, all int64, keys int) bool {
	minimum := l.All / minimumPart
	return own < l.Own() && (own <= minimum || all < l.All+l.All/2+int64(keys)*(minimum+1))
}

// Budget knows how much of a limit each key uses. It forgets keys that use nothing. It is not safe for concurrent use.
type Budget[K comparable] struct {
	Limit

	// Capped says that a key counts towards the sum with at most its share: what it uses beyond is its own affair.
	Capped bool

	used map[K]int64
	sum  int64
}

// Add notes that a key uses so much more, or less if it is negative.
func (b *Budget[K]) Add(key K, more int64) { b.Set(key, b.used[key]+more) }

// Set notes how much a key uses.
func (b *Budget[K]) Set(key K, used int64) {
	used = max(0, used)
	b.sum += b.counted(used) - b.counted(b.used[key])
	if b.used == nil {
		b.used = map[K]int64{}
	}
	if b.used[key] = used; used == 0 {
		delete(b.used, key)
	}
}

func (b *Budget[K]) counted(used int64) int64 {
	if b.Capped {
		return min(used, b.Own())
	}
	return used
}

// Used returns how much a key uses.
func (b *Budget[K]) Used(key K) int64 { return b.used[key] }

// Keys yields the keys that use something.
func (b *Budget[K]) Keys() iter.Seq[K] { return maps.Keys(b.used) }

// Sum returns how much all keys use.
func (b *Budget[K]) Sum() int64 { return b.sum }

// Fraction returns the part of the limit that is used.
func (b *Budget[K]) Fraction() float64 { return float64(b.sum) / float64(b.All) }

// Allows reports whether a key may use more.
func (b *Budget[K]) Allows(key K) bool { return b.Limit.Allows(b.used[key], b.sum, b.keysWith(key)) }

// Fits reports whether one more of a key is within the bounds that Allows keeps.
func (b *Budget[K]) Fits(key K) bool { return b.Limit.Fits(b.used[key], b.sum, b.keysWith(key)) }

func (b *Budget[K]) keysWith(key K) int {
	if b.used[key] == 0 {
		return len(b.used) + 1
	}
	return len(b.used)
}

// IsOver reports whether a key uses more than it may, or would if it used so much more.
func (b *Budget[K]) IsOver(key K, more int64) bool {
	return !b.Limit.Allows(b.used[key]+more-1, b.sum-1, len(b.used))
}

// Excess returns whose use has to shrink because a key uses more: that of the key itself above its share, and above the limit
// that of the key which uses most. ok is false when nobody's has to.
func (b *Budget[K]) Excess(key K) (from K, ok bool) {
	switch {
	case b.used[key] > b.Own():
		return key, true
	case b.sum <= b.All:
		return from, false
	}
	for other, used := range b.used {
		if used > b.used[from] {
			from = other
		}
	}
	return from, true
}
