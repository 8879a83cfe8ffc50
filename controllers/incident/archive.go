package incident

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsin-dev/tocsin/controllers/sweep"
)

var episodesOmitted = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "tocsin_archive_omitted_episodes_total",
	Help: "Ended episodes that get no record in the archive, because their Incident was reopened too often while " +
		"others waited. The record of an earlier episode counts them.",
})

// archiveRetry returns when to look again at an Incident that the archive should have had for so long: after as long again, at
// the least after deletionRetry, and 0 if the sweeps find it first. After an outage there may be very many.
func archiveRetry(late time.Duration) time.Duration {
	if late = max(late, deletionRetry); late < sweep.Interval {
		return late
	}
	return 0
}
