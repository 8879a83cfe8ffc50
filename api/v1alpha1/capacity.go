package v1alpha1

// DefaultNamespaceShare is the default fraction of a cluster-wide limit that one namespace may use.
const DefaultNamespaceShare = 0.25

// Capacity is a limit for all namespaces together, and the fraction of it that one namespace may use.
type Capacity struct {
	Limit int64
	Share float64 // 0 to 1
}

// Own returns how much one namespace may use: its share of the limit, at least 1.
func (c Capacity) Own() int64 { return max(1, int64(float64(c.Limit)*c.Share)) }

// Allows reports whether a namespace that uses own may use more, while all namespaces together use total.
//
// Below the limit, a namespace may use its share. Above the limit, there is a reserve of half the limit, and a namespace
// may use an equal part of the remaining reserve: namespaces that filled the limit are rejected, and the others are not.
// Every namespace may always use 1/minimumPart of the limit. The total is at most one and a half times the limit plus
// these minima.
func (c Capacity) Allows(own, total int64, namespaces int) bool {
	if own >= c.Own() {
		return false
	}
	reserve := c.Limit + c.Limit/2 - total
	return total < c.Limit || own <= c.Limit/minimumPart || own*int64(namespaces) < reserve
}

// minimumPart is the divisor of the limit that gives the minimum of each namespace.
const minimumPart = 2000
