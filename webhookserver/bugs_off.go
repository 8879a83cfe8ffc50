//go:build !tocsin_bugs

package webhookserver

import "time"

// seeded says whether the manager has a bug on purpose, for hack/suites/faults to show that it would be found.
// An ordinary build has none, and the compiler leaves out whatever depends on it.
func seeded(string) bool { return false }

// clockSkew is how wrong the clock is on purpose.
func clockSkew() time.Duration { return 0 }
