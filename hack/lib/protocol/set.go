package protocol

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strings"
)

// Set is a set of numbers, such as those of AlertEvents. It is a value: no method changes it, and equal sets are ==.
type Set struct {
	low  uint64 // the numbers below 64, which take no memory of their own: the model has no others
	high string // bits of those from 64 on, eight in a byte, without zeros at the end
}

// SetOf returns the set of the numbers whose bits are set.
func SetOf(bits uint64) Set { return Set{low: bits} }

// Bits returns the bits of the numbers below 64.
func (s Set) Bits() uint64 { return s.low }

// Has reports whether the set has a number.
func (s Set) Has(n int) bool {
	if n < 64 {
		return s.low>>n&1 == 1
	}
	at := (n - 64) / 8
	return at < len(s.high) && s.high[at]>>((n-64)%8)&1 == 1
}

// With returns the set with another number.
func (s Set) With(n int) Set {
	if n < 64 {
		return Set{s.low | 1<<n, s.high}
	}
	one := make([]byte, (n-64)/8+1)
	one[len(one)-1] = 1 << ((n - 64) % 8)
	return s.Or(Set{high: string(one)})
}

// Or returns what either set has.
func (s Set) Or(t Set) Set {
	return combine(s.low|t.low, s.high, t.high, func(a, b byte) byte { return a | b })
}

// And returns what both sets have.
func (s Set) And(t Set) Set {
	return combine(s.low&t.low, s.high, t.high, func(a, b byte) byte { return a & b })
}

// Without returns what only the first set has.
func (s Set) Without(t Set) Set {
	return combine(s.low&^t.low, s.high, t.high, func(a, b byte) byte { return a &^ b })
}

func combine(low uint64, a, b string, op func(a, b byte) byte) Set {
	if a == "" && b == "" {
		return Set{low: low}
	}
	high := make([]byte, max(len(a), len(b)))
	for i := range high {
		var x, y byte
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		high[i] = op(x, y)
	}
	return Set{low, strings.TrimRight(string(high), "\x00")}
}

// IsEmpty reports whether the set has nothing.
func (s Set) IsEmpty() bool { return s == Set{} }

// Contains reports whether the set has all of another one.
func (s Set) Contains(t Set) bool { return t.Without(s).IsEmpty() }

// Len returns how many numbers the set has.
func (s Set) Len() int {
	n := bits.OnesCount64(s.low)
	for i := range len(s.high) {
		n += bits.OnesCount8(s.high[i])
	}
	return n
}

// All yields the numbers in ascending order.
func (s Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for rest := s.low; rest != 0; rest &= rest - 1 {
			if !yield(bits.TrailingZeros64(rest)) {
				return
			}
		}
		for i := range len(s.high) {
			for rest := s.high[i]; rest != 0; rest &= rest - 1 {
				if !yield(64 + 8*i + bits.TrailingZeros8(rest)) {
					return
				}
			}
		}
	}
}

// Last returns the n largest numbers, or all if there are no more.
func (s Set) Last(n int) (last Set) {
	members := slices.Collect(s.All())
	for i, member := range members {
		if i >= len(members)-n {
			last = last.With(member)
		}
	}
	return last
}

// HasBefore reports whether the set has a number that is smaller than n.
func (s Set) HasBefore(n int) bool {
	for first := range s.All() {
		return first < n
	}
	return false
}

// String lists the numbers.
func (s Set) String() string {
	var members []string
	for n := range s.All() {
		members = append(members, fmt.Sprint(n))
	}
	return "[" + strings.Join(members, " ") + "]"
}
