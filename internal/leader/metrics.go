package leader

import "github.com/prometheus/client_golang/prometheus"

// masterStatus has the name and the help of client-go's metric, which controller-runtime registers and only client-go can set.
var masterStatus = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "leader_election_master_status",
	Help: "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is " +
		"the string used to identify the lease. Please make sure to group by name.",
}, []string{"name"})

// RegisterMetrics registers the metrics of a process, in place of those that controller-runtime has registered.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.Unregister(masterStatus)
	registry.MustRegister(masterStatus)
}
