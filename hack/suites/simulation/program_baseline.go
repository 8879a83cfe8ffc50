//go:build baseline

package simulation

import (
	"context"

	"github.com/tocsin-dev/older/bridge"

	"github.com/tocsin-dev/tocsin/internal/app"
)

// olderProgram runs a replica of the baseline.
var olderProgram program = func(ctx context.Context, flags []string, e app.Environment) error {
	return bridge.Run(ctx, flags, e.Config, e.Log, e.Clock, e.Listener.Listen)
}
