package commit

// Capacity limits what the namespaces may store in the cluster. It implements prometheus.Collector, to report how much
// of the limits is used.
type Capacity struct {
	Pending   *PendingEvents
	Incidents *Incidents
}

// NewCapacity makes a Capacity for so many AlertEvents and Incidents. A namespace may have a share of each.
func NewCapacity(events, incidents int, namespaceShare float64) *Capacity {
	return &Capacity{Pending: NewPendingEvents(events, namespaceShare), Incidents: NewIncidents(incidents, namespaceShare)}
}
