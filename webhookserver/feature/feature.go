// Package feature is what the endpoint asks of an optional feature, such as heartbeats. The endpoint knows none of them: the
// program lists them in its options.
package feature

import (
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// Recheck is how long a report waits that is not due, until it is looked at again: the spec of its object may have changed.
const Recheck = 20 * time.Second

// Feature is an optional feature of the endpoint. Many requests ask it at the same time, and it may not block.
type Feature interface {
	// Synced reports whether it knows all that existed at the start. Until then, requests are answered 503.
	Synced() bool

	// Routes has its own operations, at paths of nobody else. Answer answers their requests, whose bodies are not read.
	Routes() protocol.Routes
	Answer(r *Request) (Answer, *protocol.Problem)

	// Take names for each alert of an integration what takes it, so that it is not stored; it leaves the other names as they are.
	Take(integration types.NamespacedName, alerts []mapping.Alert, takers []string)

	// Accepted returns the reports that follow from a request that was accepted at a time, whole or in part, with its alerts.
	Accepted(integration types.NamespacedName, alerts []mapping.Alert, whole bool, at time.Time) []Report

	// LinkPeriod is how long it may take until people are told that a federated integration's sender is gone.
	LinkPeriod(integration types.NamespacedName) time.Duration
}

// Request is a request for an operation of a feature, to an integration that accepts it.
type Request struct {
	Integration types.NamespacedName
	Identifier  string                    // the value of {identifier}
	Parameters  iter.Seq2[string, string] // of the query
	Received    time.Time                 // by the API server's clock
	DryRun      bool
}

// Answer is the answer to a request, with a Report. If it is Urgent, since it tells a failure, it waits until the report is
// written.
type Answer struct {
	protocol.Reply
	Report
	Urgent bool
}

// Report is something that is to be written to the status of an object. Its methods are called under a lock.
type Report interface {
	// Object returns the object, as the cache has it: of a kind on which this feature alone reports.
	Object() client.Object

	// AddTo returns the report with those that wait for a write of the object, nil if none does, and when they are due.
	AddTo(waiting Reports) (all Reports, due time.Time)
}

// Reports are to be written to the status of one object, by one patch. They do not change.
type Reports interface {
	// Write sets fields of the status of the object as it was read, if the reports are due, or all are to be written. It returns
	// those that the status has then, or else when they are due. A not-found error says that the object is another one.
	Write(fields map[string]any, object client.Object, now time.Time, all bool) (written Reports, due time.Time, err error)

	// Without returns what is left of the reports once others are written, nil if nothing is.
	Without(written Reports) Reports
}
