package fold

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// leaseOf returns how long an Incident stays open after a firing alert that is not repeated; nil if its sender does not
// say until when the alert is valid.
//
// The end of the lease is a time of the sender's clock, so it is never compared with the leader's. The lease is the shorter
// of two durations. The first, from startTime to the end, is one of the sender's clock alone: it is exact in the first
// message of an alert, and it grows with the age of the alert. The second, from the receipt to the end, is exact if the
// clocks agree; clocks that differ by up to MaxClockDifference must not end an alert early. A sender whose clock is ahead
// therefore has its alerts expire in time when they are new, and late by the difference when they are old. A sender whose
// clock is behind by more than its lease reports ends in the past, which mean that the alert is resolved.
func leaseOf(a receivedAlert) *metav1.Duration {
	if !isSet(a.LeaseEndTime) {
		return nil
	}
	lease := min(a.LeaseEndTime.Sub(a.heard), maxLease) + MaxClockDifference
	if isSet(a.StartTime) && a.LeaseEndTime.After(a.StartTime.Time) {
		lease = min(lease, a.LeaseEndTime.Sub(a.StartTime.Time))
	}
	return &metav1.Duration{Duration: boundLease(lease).Round(time.Second)}
}

// boundLease limits a lease: a tiny one would resolve and reopen its Incident with each repetition, and a huge one would
// never end.
func boundLease(lease time.Duration) time.Duration { return min(max(lease, minLease), maxLease) }

// leaseEnd returns when the lease of an Open Incident that was heard last at since ends; not ok if it has none, or if its
// integration does not exist, so that its sender cannot renew it.
func leaseEnd(status *v1alpha1.IncidentStatus, since time.Time, p Policy) (at time.Time, ok bool) {
	if status.Lease == nil || p.Absent {
		return time.Time{}, false
	}
	return latest(latest(since, p.QuietFrom), p.AcceptingFrom).Add(boundLease(status.Lease.Duration)), true
}
