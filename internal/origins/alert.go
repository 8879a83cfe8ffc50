package origins

import "github.com/tocsin-dev/tocsin/api/v1alpha1"

// present tells of each field whether an alert has it.
var present = [Count]func(a *v1alpha1.Alert) bool{
	Title:       func(a *v1alpha1.Alert) bool { return a.Title != "" },
	Description: func(a *v1alpha1.Alert) bool { return a.Description != "" },
	Severity:    func(a *v1alpha1.Alert) bool { return a.Severity != "" },
	Status:      func(a *v1alpha1.Alert) bool { return a.Status != "" },
	DedupKey:    func(a *v1alpha1.Alert) bool { return a.DedupKey != "" },
	Type:        func(a *v1alpha1.Alert) bool { return a.Type != "" },
	Link:        func(a *v1alpha1.Alert) bool { return a.Link != "" },
	Hostname:    func(a *v1alpha1.Alert) bool { return a.Hostname != "" },
	Region:      func(a *v1alpha1.Alert) bool { return a.Region != "" },
	StartsAt:    func(a *v1alpha1.Alert) bool { return a.StartTime != nil },
	EndsAt:      func(a *v1alpha1.Alert) bool { return a.EndTime != nil },
	ExpiresAt:   func(a *v1alpha1.Alert) bool { return a.ExpiryTime != nil },
	Labels:      func(a *v1alpha1.Alert) bool { return len(a.Labels) > 0 },
	Annotations: func(a *v1alpha1.Alert) bool { return len(a.Annotations) > 0 },
	Values:      func(a *v1alpha1.Alert) bool { return len(a.Values) > 0 },
	Custom:      func(a *v1alpha1.Alert) bool { return len(a.Custom) > 0 },
}

// Present returns which fields an alert has.
func Present(a *v1alpha1.Alert) (has [Count]bool) {
	for f := range has {
		has[f] = present[f](a)
	}
	return has
}

// unread is the kind of each field that no key and no expression gave, unless the request did.
var unread = [Count]Kind{
	Severity: PresetSeverity, Status: BuiltIn, DedupKey: Generated, StartsAt: Generated, EndsAt: Generated, Custom: Unmapped,
}

// Settle completes the kinds for an alert that has been read: what it lacks has none, and what it has, one.
func (o *Origins) Settle(a *v1alpha1.Alert) {
	for f := range o.Kinds {
		switch {
		case !present[f](a):
			o.Kinds[f] = Absent
		case o.Kinds[f] == Absent && unread[f] == Absent:
			o.Kinds[f] = Request
		case o.Kinds[f] == Absent:
			o.Kinds[f] = unread[f]
		}
	}
}

// Given notes that the request gave the fields that the alert has now and had not before.
func (o *Origins) Given(before [Count]bool, a *v1alpha1.Alert) {
	for f := range o.Kinds {
		if !before[f] && present[f](a) {
			o.Kinds[f] = Request
		}
	}
}
