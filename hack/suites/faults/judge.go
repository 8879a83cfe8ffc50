package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
)

// readHistory gives the oracle what etcd committed for the tenants since the revision. etcd does not know who wrote
// something. The operator deletes no Incident here: none is old enough, and no namespace has too many.
func (r *rig) readHistory(ctx context.Context, tenants []tenant, since int64, options oracle.Options) (*oracle.History, error) {
	commits, err := r.history.since(ctx, since)
	if err != nil {
		return nil, fmt.Errorf("reading etcd's history: %w", err)
	}
	history := oracle.NewHistory(options)
	for _, commit := range commits {
		if !slices.ContainsFunc(tenants, func(t tenant) bool { return t.namespace == commit.Namespace }) {
			continue
		}
		commit.ByUser = commit.Resource == "incidents" && commit.Deleted
		history.Commit(commit)
	}
	return history, nil
}

// checkOptions leave out what a scenario makes meaningless.
type checkOptions struct {
	looseOrder       bool // alerts may be seen in another order than they were committed in
	restored         bool // what was acknowledged while traffic.lostFrom and lostUntil say so may be gone
	namespaceDeleted bool // the second tenant's namespace is gone
}

// oracleOptions are the options of the oracle for a run.
func (r *run) oracleOptions(options checkOptions) oracle.Options {
	o := oracle.Options{
		LooseOrder:       options.looseOrder,
		AutoResolveAfter: func(string, string) time.Duration { return autoResolveAfter },
		LateFiringWindow: func(string, string) time.Duration { return lateFiringWindow },
	}
	if options.restored {
		o.LostFrom, o.LostUntil = r.traffic.lostFrom, r.traffic.lostUntil
	}
	if options.namespaceDeleted {
		o.DeletedNamespaces = []string{r.tenants[1].namespace}
	}
	return o
}
