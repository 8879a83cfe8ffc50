package simulation

import (
	"fmt"
	"slices"
	"strings"
)

// tenants is the number of namespaces.
const tenants = 2

func tenantName(i int) string { return "tenant-" + string(rune('a'+i)) }

// Settings are how the replicas are configured.
type Settings struct {
	Replicas     int  // places for processes
	Older        bool // they are of the baseline at first
	Elect        bool // with a lease; else every replica folds, all the time
	Writes       int  // --max-in-flight-writes: with 1, requests share AlertEvents
	MaxIncidents int  // 0: the default
	AutoResolve  bool // after a minute
	HoldBack     bool // Incidents are forwarded after minutes, but for critical ones
	Forget       bool // acknowledgements expire after a minute
	Forward      bool // to Alertmanagers
	KeepFiring   bool // Incidents are forwarded, and the ends of those that flap are kept back
	Forbidden    bool // no Incident of key-0 can ever be created
	Archivers    int  // they require the archive, to which so many archivers write
}

func (s Settings) String() string {
	text := fmt.Sprintf("%d replicas", s.Replicas)
	if s.Older {
		text += " of the baseline"
	}
	if !s.Elect {
		text += " without a lease"
	}
	if s.Writes == 1 {
		text += ", one write at a time"
	}
	if s.MaxIncidents > 0 {
		text += fmt.Sprintf(", at most %d Incidents", s.MaxIncidents)
	}
	if s.AutoResolve {
		text += ", autoResolveAfter 1m"
	}
	if s.HoldBack {
		text += ", forwardAfter"
	}
	if s.Forget {
		text += ", acknowledgementExpiresAfter 1m"
	}
	if s.Forward {
		text += ", forwarding"
	}
	if s.KeepFiring {
		text += ", keepFiringFor " + keptFor.String()
	}
	if s.Forbidden {
		text += ", no Incidents of key-0"
	}
	if s.Archivers > 0 {
		text += fmt.Sprintf(", %d archivers", s.Archivers)
	}
	return text
}

// Story is what happens in one run, except for what the seed decides.
type Story struct {
	Settings
	Operations []operation
}

// String returns the settings and the operations, one a line.
func (s *Story) String() string {
	lines := []string{s.Settings.String()}
	for _, o := range s.Operations {
		lines = append(lines, o.String())
	}
	return strings.Join(lines, "\n")
}

// breaksWatches says whether watches break their promise.
func (s *Story) breaksWatches() bool {
	return slices.ContainsFunc(s.Operations, func(o operation) bool {
		t, ok := o.(trouble)
		return ok && breaches[t.effect] != nil
	})
}

// operation is something that happens. It does not wait for its effects.
type operation interface {
	fmt.Stringer
	do(w *world)
}
