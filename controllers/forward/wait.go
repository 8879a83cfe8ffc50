package forward

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// signal wakes one goroutine that sleeps, or that is going to.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) give() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// sleep waits for a time, for ctx, or for a signal.
func sleep(ctx context.Context, d time.Duration, signal signal) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-signal:
	}
}

func newBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: minBackoff, Factor: 2, Jitter: 0.2, Steps: 10, Cap: maxBackoff}
}
