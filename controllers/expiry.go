package controllers

import (
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// deadline is when the Incident's time is up: when an Open one resolves by itself, or a Resolved one is
// to be deleted. ok is false when that never happens.
func deadline(*v1alpha1.Incident, policy) (at time.Time, ok bool) { return time.Time{}, false }
