package simulation

import (
	"context"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/internal/app"
)

// program runs a replica of one version of the manager, with its command line, until ctx ends.
type program func(ctx context.Context, flags []string, e app.Environment) error

// presentProgram runs a replica of the present version.
func presentProgram(ctx context.Context, flags []string, e app.Environment) error {
	options, err := app.ParseFlags(flags)
	if err != nil {
		return err
	}
	return app.Run(ctx, options, e)
}

// roll replaces the process of a replica by one of another version, or of the same one.
type roll struct {
	replica int
	older   bool
}

func (o roll) do(w *world) {
	r := w.replicas[o.replica]
	r.terminate()
	r.older = o.older
	if err := r.start(); err != nil {
		panic(err)
	}
}

// endsOlder says whether the replicas are of the baseline at the end.
func (s *Story) endsOlder() bool {
	older := s.Older
	for _, o := range s.Operations {
		if last, ok := o.(roll); ok {
			older = last.older
		}
	}
	return older
}

// rolls draws how replicas of the baseline are rolled forward, perhaps back, and forward again, with posts between them. What the
// baseline does not know is not asked for.
func (d *drawer) rolls(t *rapid.T, s *Story) []operation {
	s.Older, s.HoldBack, s.Forget = true, false, false
	operations := []operation{wait{10 * time.Second}}
	directions := oneOf(t, "directions", []bool{false}, []bool{false, true}, []bool{false, true, false})
	s.Forward = s.Forward && len(directions) == 1 // the baseline has another name for the alerts of what the present opened
	for i, older := range directions {
		for replica := range s.Replicas {
			operations = append(operations, roll{replica, older})
			for j := range rapid.IntRange(0, 4).Draw(t, fmt.Sprint("posts ", i, replica)) {
				operations = append(operations, post{
					tenant: d.tenant(t), to: j, times: 1, alerts: []alert{d.alert(t)},
					key: oneOf(t, "idempotency key", "", "", "k1", "k2"),
				})
			}
			operations = append(operations, d.wait(t))
		}
	}
	return operations
}
