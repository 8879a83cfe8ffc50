//go:build tocsin_bugs

package controllers

import (
	"os"
	"time"
)

// seeded says whether TOCSIN_BUG names this bug.
func seeded(bug string) bool { return os.Getenv("TOCSIN_BUG") == bug }

// clockSkew is TOCSIN_CLOCK_SKEW, such as 1h or -1h.
func clockSkew() time.Duration {
	skew, _ := time.ParseDuration(os.Getenv("TOCSIN_CLOCK_SKEW"))
	return skew
}
