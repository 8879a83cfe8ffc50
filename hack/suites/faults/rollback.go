package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// leastQueue is how many AlertEvents must wait to be folded by the other version.
const leastQueue = 20

// baselineFile is the path of a file of the version to which a rollback leads.
func baselineFile(name string) string {
	return filepath.Join(testenv.Root(), "hack", "suites", "baseline", name)
}

// buildBaseline builds the manager of the baseline and returns its path.
func (s *suite) buildBaseline(ctx context.Context, commit string) (string, error) {
	clone, binary := filepath.Join(s.folder, "baseline"), filepath.Join(s.folder, "manager-baseline")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil // of the round before
	}
	for _, step := range [][]string{
		{"git", "clone", "--quiet", "--shared", "--no-checkout", testenv.Root(), clone},
		{"git", "-C", clone, "checkout", "--quiet", commit},
		{"go", "build", "-C", clone, "-o", binary, "."},
	} {
		if output, err := exec.CommandContext(ctx, step[0], step[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("building the manager of %s: %w: %s", commit, err, output)
		}
	}
	return binary, nil
}

// isInClone reports whether the repository has a commit: a shallow clone may lack it.
func isInClone(ctx context.Context, commit string) bool {
	return exec.CommandContext(ctx, "git", "-C", testenv.Root(), "cat-file", "-e", commit+"^{commit}").Run() == nil
}

// rollback rolls back to the baseline under load, and forward again.
func rollback(ctx context.Context, s *suite) (*report, error) {
	raw, err := os.ReadFile(baselineFile("commit"))
	if err != nil {
		return nil, err
	}
	commit := strings.TrimSpace(string(raw))
	if !isInClone(ctx, commit) {
		void := "the commit " + commit + " is not in this shallow clone"
		return &report{void: void, notes: []string{void}}, nil
	}
	baseline, err := s.buildBaseline(ctx, commit)
	if err != nil {
		return nil, err
	}
	scenario := &scenario{name: "rollback", rest: 100 * time.Millisecond, fault: func(ctx context.Context, r *run) error {
		return r.rollBackAndForward(ctx, baseline)
	}}
	if err := s.prepareRig(ctx, scenario); err != nil {
		return nil, err
	}
	return s.rig.runScenario(ctx, scenario)
}

// rollBackAndForward takes the steps of docs/upgrade.md. Each version folds a queue that the other one has stored.
func (r *run) rollBackAndForward(ctx context.Context, baseline string) error {
	if err := r.deleteMarked(ctx); err != nil {
		return fmt.Errorf("deleting marked AlertEvents: %w", err)
	}
	present := r.binary
	if err := r.rollOut(ctx, baseline); err != nil {
		return fmt.Errorf("rolling back: %w", err)
	}
	if err := r.applyFile(ctx, baselineFile("manifests.yaml")); err != nil {
		return err
	}
	pause(ctx, 5*time.Second)
	if err := r.applyManifests(ctx); err != nil {
		return err
	}
	if err := r.rollOut(ctx, present); err != nil {
		return fmt.Errorf("rolling forward: %w", err)
	}
	r.setRule(nil)
	return nil
}

// deleteMarked has no more AlertEvents marked, and deletes those that are settled for all their Incidents: the other version
// does not know marks, and would fold them again. A user stops the manager for that.
func (r *run) deleteMarked(ctx context.Context) error {
	r.setRule(refuseMarks)
	pause(ctx, 2*time.Second) // for those under way
	for _, tenant := range r.tenants {
		var list v1alpha1.AlertEventList
		if err := r.admin.List(ctx, &list, client.InNamespace(tenant.namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if mark, ok := queue.MarkOf(&list.Items[i]); ok && mark.All {
				if err := client.IgnoreNotFound(r.admin.Delete(ctx, &list.Items[i])); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// refuseMarks refuses to mark AlertEvents.
var refuseMarks = refusing(http.StatusTooManyRequests, marking)

// rollOut replaces the replicas one by one by those of another binary. The old leader cannot fold at the end, so that it
// leaves a queue.
func (r *run) rollOut(ctx context.Context, binary string) error {
	leader, follower, err := r.roles(ctx)
	if err != nil {
		return err
	}
	if err := r.exchange(ctx, follower, binary); err != nil {
		return err
	}
	r.setRule(refusing(http.StatusTooManyRequests, folding, marking))
	queued := 0
	err = testenv.Await(ctx, healTime, func(ctx context.Context) error {
		ordinary, _, err := r.pendingEvents(ctx, r.tenants)
		if queued = len(ordinary); err == nil && queued < leastQueue {
			err = fmt.Errorf("only %d AlertEvents wait to be folded", queued)
		}
		return err
	})
	if err != nil {
		return err
	}
	r.note("%d AlertEvents left to the other version", queued)
	if !leader.leads() {
		return errors.New("the old version does not lead any more")
	}
	return r.exchange(ctx, leader, binary)
}

// exchange has a replica run another binary, and waits until it is ready. It ends the block on folding when the old process
// has exited.
func (r *run) exchange(ctx context.Context, replica *replica, binary string) error {
	replica.exchange(binary)
	r.setRule(refuseMarks)
	// See rollingRestart.
	r.traffic.client.CloseIdleConnections()
	replica.leaving.Store(false)
	return r.waitReady(ctx)
}
