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
	r.committed = nil
	for _, c := range commits {
		if !slices.ContainsFunc(r.tenants, func(t tenant) bool { return t.namespace == c.Namespace }) {
			continue
		}
		c.ByUser = c.Resource == "incidents" && c.Deleted
		history.Commit(c.Commit)
		r.committed = append(r.committed, c)
	}
	return history, nil
}

// judgeTrace returns the steps of the replicas that the model rejects, and how many there were. The model knows neither data that
// was lost nor watches without an order.
func (r *run) judgeTrace() (rejected oracle.Findings, steps int, err error) {
	if !r.options.LostFrom.IsZero() || r.options.LooseOrder {
		return nil, 0, nil
	}
	return r.trace.judge(r.committed)
}
