//go:build slow

// Package senders is "make test-senders": it lets a real Prometheus with alerting rules and a real
// Alertmanager send to a real manager, and checks that the Incidents follow what Prometheus says: alerts fire,
// are repeated and are resolved, while the manager is restarted, killed, and away for longer than
// Alertmanager tries. Nothing may be lost, nothing counted twice.
//
// The alerts take both ways to the manager: through Alertmanager to an integration with the preset
// alertmanager, and straight from Prometheus to one with the preset vmalert. On each way stands a relay that
// keeps account of every answer. Alertmanager also sends each group of alerts as to PagerDuty and to Opsgenie.
package senders

import (
	"context"
	"flag"
	"fmt"
	"testing"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// The programs that send.
var (
	prometheus   = flag.String("prometheus", testenv.Program("tools/prometheus"), "the Prometheus")
	alertmanager = flag.String("alertmanager", testenv.Program("tools/alertmanager"), "the Alertmanager")
)

const webhookPath = "/api/v1/events/webhook/"

// way is one of the two ways that alerts take to the manager: an integration and the relay before it.
type way struct {
	preset string // and the name of the integration and its namespace
	token  string
	relay  *relay
}

// rig is everything that runs.
type rig struct {
	*testenv.Rig
	manager *testenv.Manager
	link    *link // from Prometheus to Alertmanager
	target  *target
	through *way // Alertmanager
	direct  *way // from Prometheus
	groups  []group

	prometheus, alertmanager string // where they serve
}

// group is an integration to which Alertmanager sends its groups of alerts, as to another service: straight to the manager.
type group struct{ name, token string } // the name is also that of the namespace

func (r *rig) ways() []*way { return []*way{r.through, r.direct} }

// TestSenders runs the steps.
func TestSenders(t *testing.T) {
	r := startRig(t)
	for _, s := range steps {
		r.Run(s.name, func() { s.run(r) })
	}
	t.Logf("Through Alertmanager:    %s", r.through.relay.tally())
	t.Logf("Straight from Prometheus: %s", r.direct.relay.tally())
}

// startRig starts everything and waits until it is ready.
func startRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Rig: testenv.NewRig(t, testenv.Program("manager"), *prometheus, *alertmanager), target: startTarget()}
	t.Cleanup(r.target.Close)
	r.manager = r.Manager("manager", testenv.ManagerOptions{})
	r.through, r.direct = r.newWay("alertmanager"), r.newWay("vmalert")
	for _, name := range []string{"pagerduty", "opsgenie"} {
		r.groups = append(r.groups, group{name, r.Integrate(name, v1alpha1.WebhookIntegrationSpec{})})
	}
	free := r.Addresses(2)
	r.prometheus, r.alertmanager = free[0], free[1]
	r.link = startLink(r.alertmanager)
	t.Cleanup(r.link.Close)
	t.Cleanup(r.link.CloseClientConnections)
	r.Write("rules.yml", rules)
	r.Start(
		r.Alertmanager("alertmanager", *alertmanager, r.alertmanager, fmt.Sprintf(alertmanagerConfig,
			r.through.relay.URL+webhookPath+r.through.token, r.manager.WebhookURL+r.groups[0].token,
			r.manager.WebhookURL, r.groups[1].token), "--cluster.listen-address=", "--log.level=debug"),
		r.Prometheus(*prometheus, r.prometheus, fmt.Sprintf(prometheusConfig, disksPath, hostOf(r.target.URL), exporterPath,
			hostOf(r.link.URL), hostOf(r.direct.relay.URL), r.direct.token), "--rules.alert.resend-delay="+resendDelay),
	)
	return r
}

func (r *rig) newWay(preset string) *way {
	w := &way{preset: preset, token: r.Integrate(preset, v1alpha1.WebhookIntegrationSpec{Preset: preset})}
	var err error
	w.relay, err = startRelay(r.manager.WebhookURL, preset)
	r.Must(err)
	r.T.Cleanup(w.relay.Close)
	r.T.Cleanup(w.relay.CloseClientConnections)
	return w
}

// drained waits until the alerts that were let through are folded.
func (r *rig) drained() {
	ctx, cancel := context.WithTimeout(r.Context, testenv.WaitTimeout)
	defer cancel()
	for _, w := range r.ways() {
		_, err := loadgen.Drained(ctx, r.Client, w.preset)
		r.Must(err)
	}
}
