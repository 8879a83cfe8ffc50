package v1alpha1

// DefaultNamespaceShare is the part of each limit of the cluster that one namespace may use.
const DefaultNamespaceShare = 0.25

// Capacity is a limit for all namespaces together, and the part of it that one namespace may use.
type Capacity struct {
	Limit int64
	Share float64 // 0 to 1
}

// Own returns how much one namespace may hold: its share of the limit, 1 at the least.
func (c Capacity) Own() int64 { return max(1, int64(float64(c.Limit)*c.Share)) }

// Allows says whether a namespace that holds own may hold more, while all namespaces together hold total.
//
// Within the limit, a namespace may use its share. Past the limit there is a reserve of half the limit, and a
// namespace may hold its equal part of what is left of that: those that filled the limit are refused, and the
// others go on. Next to nothing is always allowed. So all together hold one and a half times the limit at the
// most, and next to nothing for each namespace.
func (c Capacity) Allows(own, total int64, namespaces int) bool {
	if own >= c.Own() {
		return false
	}
	reserve := c.Limit + c.Limit/2 - total
	return total < c.Limit || own <= c.Limit/nextToNothing || own*int64(namespaces) < reserve
}

// nextToNothing is the part of a limit, one in so many, that a namespace may hold however full it is.
const nextToNothing = 2000
