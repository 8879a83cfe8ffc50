package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// Statuses of notifications.
const (
	firing   = "firing"
	resolved = "resolved"
)

// happens posts an alert and adds the notification that it has to cause to the story.
func (r *rig) happens(ctx context.Context, key, severity, status string) error {
	if err := r.post(ctx, key, severity, status); err != nil {
		return err
	}
	r.tell(key, severity, status)
	return nil
}

// tell adds a notification to the story.
func (r *rig) tell(key, severity, status string) {
	about := subject{v1alpha1.IncidentName(namespace, key), severity}
	r.story[about] = append(r.story[about], status)
}

// told waits until the receiver was notified of the whole story, and the second Alertmanager has had its turn: a change that
// comes while it waits for its peer makes it notify about what was true before. That is how Alertmanager works.
func (r *rig) told(ctx context.Context) error {
	if err := testenv.Await(ctx, waitTimeout, func(context.Context) error { return r.compare() }); err != nil {
		return err
	}
	testenv.Pause(ctx, 3*peerTimeout)
	return r.compare()
}

// compare returns how the notifications differ from the story.
func (r *rig) compare() error {
	var wrong []error
	for about, want := range r.story {
		if got, _ := r.receiver.statuses(about); !slices.Equal(got, want) {
			wrong = append(wrong, fmt.Errorf("%s: the receiver got %v, not %v", about, got, want))
		}
	}
	return errors.Join(wrong[:min(len(wrong), 10)]...)
}

// judge compares the notifications with the story once more at the end, with their duplicates, and finds those that have
// nothing to do with it.
func (r *rig) judge(ctx context.Context) error {
	if err := r.told(ctx); err != nil {
		return err
	}
	var wrong []error
	for _, about := range r.receiver.subjects() {
		if _, ok := r.story[about]; !ok {
			wrong = append(wrong, fmt.Errorf("%s: nothing of it happened", about))
		}
		if _, duplicates := r.receiver.statuses(about); duplicates > r.receiver.allowed(about) {
			wrong = append(wrong, fmt.Errorf("%s: %d duplicates, and %d faults", about, duplicates, r.receiver.allowed(about)))
		}
	}
	return errors.Join(wrong...)
}

// unchanged waits for so long and makes sure that the receiver was notified of nothing but the story.
func (r *rig) unchanged(ctx context.Context, quiet func() bool) error {
	if err := r.told(ctx); err != nil {
		return err
	}
	if !quiet() {
		return ctx.Err()
	}
	return r.compare()
}
