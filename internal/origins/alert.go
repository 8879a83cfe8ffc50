package origins

import (
	"cmp"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Present returns which fields an alert has.
func Present(a *v1alpha1.Alert) [Count]bool {
	return [Count]bool{
		Title: a.Title != "", Description: a.Description != "", Severity: a.Severity != "", Status: a.Status != "",
		DedupKey: a.DedupKey != "", Type: a.Type != "", Link: a.Link != "", Hostname: a.Hostname != "", Region: a.Region != "",
		StartsAt: a.StartTime != nil, EndsAt: a.EndTime != nil, ExpiresAt: a.ExpiryTime != nil,
		Labels: len(a.Labels) > 0, Annotations: len(a.Annotations) > 0, Values: len(a.Values) > 0, Custom: len(a.Custom) > 0,
	}
}

// unread is the kind of each field that no key and no expression gave, unless the request did.
var unread = [Count]Kind{
	Severity: PresetSeverity, Status: BuiltIn, DedupKey: Generated, StartsAt: Generated, EndsAt: Generated, Custom: Unmapped,
}

// Settle completes the kinds for an alert that has been read: what it lacks has none, and what it has, one.
func (o *Origins) Settle(a *v1alpha1.Alert) {
	for f, has := range Present(a) {
		if has {
			o.Kinds[f] = cmp.Or(o.Kinds[f], unread[f], Request)
		} else {
			o.Kinds[f] = Absent
		}
	}
}

// Given notes that the request gave the fields that the alert has now and had not before.
func (o *Origins) Given(before [Count]bool, a *v1alpha1.Alert) {
	for f, has := range Present(a) {
		if has && !before[f] {
			o.Kinds[f] = Request
		}
	}
}
