// Package wallclock has a clock that tests set, as somebody sets the clock of a node.
package wallclock

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// Clock is the clock of a node. The zero value is right.
type Clock struct{ ahead atomic.Int64 } // in seconds

// Set has the wall clock show another time than the right one; ahead is rounded to seconds.
func (c *Clock) Set(ahead time.Duration) { c.ahead.Store(int64(ahead / time.Second)) }

// epoch is the time from which a time.Time counts its seconds if it has a reading of the monotonic clock.
var epoch = time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix()

// Now implements replica.Clock. What the wall clock shows may be wrong, and the reading of the monotonic clock never is, as
// where somebody sets the clock. In a bubble time.Now has no such reading, and no function of the package adds one: so the
// two words of a time.Time are written as it does.
func (c *Clock) Now() time.Time {
	now := time.Now()
	const hasMonotonic, nanosecondBits = 1 << 63, 30
	seconds := uint64(now.Unix() + c.ahead.Load() - epoch)
	//nolint:gosec // the first two words are of the wall clock and of the monotonic one
	words := (*[2]uint64)(unsafe.Pointer(&now))
	nanoseconds, reading := uint64(now.Nanosecond()), uint64(now.UnixNano())
	words[0], words[1] = hasMonotonic|seconds<<nanosecondBits|nanoseconds, reading
	return now
}
