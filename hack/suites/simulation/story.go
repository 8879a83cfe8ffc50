package simulation

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// tenants are the namespaces, each with an integration.
var tenants = []string{"tenant-a", "tenant-b"}

func tenantName(i int) string { return tenants[i] }

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

// Story is what happens in one run, except for what the seed decides.
type Story struct {
	Settings
	Operations []operation
}

// String returns the settings and the operations, one a line.
func (s *Story) String() string {
	lines := []string{literal(reflect.ValueOf(s.Settings))}
	for _, o := range s.Operations {
		lines = append(lines, literal(reflect.ValueOf(o)))
	}
	return strings.Join(lines, "\n")
}

// literal writes a value almost as in Go, without texts, flags and durations that are zero.
func literal(value reflect.Value) string {
	var parts []string
	switch {
	case value.Kind() == reflect.Struct:
		for i := range value.NumField() {
			if field := value.Field(i); !field.IsZero() || field.CanInt() && field.Type() != reflect.TypeFor[time.Duration]() {
				parts = append(parts, value.Type().Field(i).Name+": "+literal(field))
			}
		}
		return value.Type().Name() + "{" + strings.Join(parts, ", ") + "}"
	case value.Kind() == reflect.Slice:
		for i := range value.Len() {
			parts = append(parts, literal(value.Index(i)))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case value.Type() == reflect.TypeFor[time.Duration]():
		return time.Duration(value.Int()).String()
	default:
		return fmt.Sprint(value)
	}
}

// breaksWatches says whether watches break their promise.
func (s *Story) breaksWatches() bool {
	return slices.ContainsFunc(s.Operations, func(o operation) bool {
		t, ok := o.(trouble)
		return ok && breaches[t.effect] != nil
	})
}

// loses says whether a watch may lose a change of a resource, which then counts from its next change on.
func (s *Story) loses(resource string) bool {
	return slices.ContainsFunc(s.Operations, func(o operation) bool {
		t, ok := o.(trouble)
		return ok && t.effect == drop && (t.resource == resource || t.resource == "")
	})
}

// has says whether the story has an operation of a type.
func has[T operation](s *Story) bool {
	return slices.ContainsFunc(s.Operations, func(o operation) bool { _, is := o.(T); return is })
}

// hasClocks reports whether clocks of the story are wrong.
func (s *Story) hasClocks() bool { return has[setClock](s) || has[setServerClock](s) }

// operation is something that happens. It does not wait for its effects.
type operation interface{ do(w *world) }
