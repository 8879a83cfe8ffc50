package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
)

// readHistory gives the oracle what etcd committed for the tenants since the revision. etcd does not know who wrote
// something. The operator deletes no Incident here: none is old enough, and no namespace has too many.
func (r *run) readHistory(ctx context.Context, since int64) (*oracle.History, error) {
	commits, err := r.history.since(ctx, since)
	if err != nil {
		return nil, fmt.Errorf("reading etcd's history: %w", err)
	}
	history := oracle.NewHistory(r.options)
	for _, commit := range commits {
		if !slices.ContainsFunc(r.tenants, func(t tenant) bool { return t.namespace == commit.Namespace }) {
			continue
		}
		commit.ByUser = commit.Resource == "incidents" && commit.Deleted
		history.Commit(commit)
	}
	return history, nil
}
