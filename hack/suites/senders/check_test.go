//go:build slow

package senders

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// firing is an alert that Prometheus says is firing.
type firing struct {
	Labels      map[string]string
	Annotations map[string]string
	State       string
	ActiveAt    time.Time
}

// severities are what the rules' severities are to be read as.
var severities = map[string]v1alpha1.Severity{
	"critical": v1alpha1.SeverityCritical, "ticket": v1alpha1.SeverityWarning, "none": v1alpha1.SeverityInfo,
}

// firingAlerts asks Prometheus what fires.
func (r *rig) firingAlerts(ctx context.Context) (alerts []firing, err error) {
	var answer struct {
		Data struct{ Alerts []firing }
	}
	if err := getJSON(ctx, "http://"+r.prometheus+"/api/v1/alerts", &answer); err != nil {
		return nil, err
	}
	for _, alert := range answer.Data.Alerts {
		if alert.State == "firing" {
			alerts = append(alerts, alert)
		}
	}
	return alerts, nil
}

// fingerprints asks Alertmanager for the fingerprints of the alerts that it knows, by their labels.
func (r *rig) fingerprints(ctx context.Context) (map[string]string, error) {
	var alerts []struct {
		Labels      map[string]string
		Fingerprint string
	}
	if err := getJSON(ctx, "http://"+r.alertmanager+"/api/v2/alerts", &alerts); err != nil {
		return nil, err
	}
	prints := map[string]string{}
	for _, alert := range alerts {
		prints[fmt.Sprint(alert.Labels)] = alert.Fingerprint
	}
	return prints, nil
}

// agree tells whether on both ways the open Incidents are the alerts that fire, with what they say.
func (r *rig) agree(ctx context.Context) error {
	alerts, err := r.firingAlerts(ctx)
	if err != nil {
		return err
	}
	prints, err := r.fingerprints(ctx)
	if err != nil {
		return err
	}
	for _, w := range r.ways() {
		incidents, err := r.incidents(ctx, w)
		if err != nil {
			return err
		}
		for _, alert := range alerts {
			labels := fmt.Sprint(alert.Labels)
			incident := incidents[labels]
			if incident == nil {
				return fmt.Errorf("%s: %s fires, and there is no Incident", w.preset, labels)
			}
			if err := compare(alert, incident); err != nil {
				return fmt.Errorf("%s: %s: %w", w.preset, labels, err)
			}
			if w == r.through && incident.Spec.DedupKey != prints[labels] {
				return fmt.Errorf("%s has the key %s, not its fingerprint %s", labels, incident.Spec.DedupKey, prints[labels])
			}
			delete(incidents, labels)
		}
		for labels, incident := range incidents {
			if incident.Status.State != v1alpha1.IncidentResolved {
				return fmt.Errorf("%s: %s fires no more and is %s", w.preset, labels, incident.Status.State)
			}
		}
	}
	return nil
}

// agreeInGroups tells whether the services to which Alertmanager sends groups have an open Incident for each group that has
// an alert that fires, and none else.
func (r *rig) agreeInGroups(ctx context.Context) error {
	alerts, err := r.firingAlerts(ctx)
	if err != nil {
		return err
	}
	for _, g := range r.groups {
		fires := map[string]bool{}
		for _, alert := range alerts {
			fires[alert.Labels["alertname"]] = true
		}
		var list v1alpha1.IncidentList
		if err := r.Client.List(ctx, &list, client.InNamespace(g.name)); err != nil {
			return err
		}
		for i := range list.Items {
			status := &list.Items[i].Status
			name := groupName.FindString(status.Alert.Title)
			if open := status.State == v1alpha1.IncidentOpen; open != fires[name] {
				return fmt.Errorf("%s: the Incident of %q is %s", g.name, status.Alert.Title, status.State)
			}
			delete(fires, name)
		}
		if len(fires) > 0 {
			return fmt.Errorf("%s: %v fire, and there is no Incident", g.name, slices.Sorted(maps.Keys(fires)))
		}
	}
	return nil
}

// groupName finds the alert's name in the default title of a group: "[FIRING:1] DiskFull (…)".
var groupName = regexp.MustCompile(`DiskFull|ExporterDown|Watchdog`)

// incidents are those of a way, by their labels.
func (r *rig) incidents(ctx context.Context, w *way) (map[string]*v1alpha1.Incident, error) {
	var list v1alpha1.IncidentList
	if err := r.Client.List(ctx, &list, client.InNamespace(w.preset)); err != nil {
		return nil, err
	}
	found := map[string]*v1alpha1.Incident{}
	for i := range list.Items {
		incident := &list.Items[i]
		labels := incident.Status.Alert.Labels
		if other := found[fmt.Sprint(labels)]; other != nil {
			return nil, fmt.Errorf("%s: %s and %s are of the same alert", w.preset, other.Name, incident.Name)
		}
		found[fmt.Sprint(labels)] = incident
	}
	return found, nil
}

// compare tells how an Incident differs from its alert.
func compare(alert firing, incident *v1alpha1.Incident) error {
	is := incident.Status
	title, host := alert.Annotations["summary"], alert.Labels["instance"]
	if title == "" {
		title = alert.Labels["alertname"]
	}
	host, _, _ = strings.Cut(host, ":")
	var wrong []error
	for _, field := range []struct {
		name       string
		have, want any
	}{
		{"state", is.State, v1alpha1.IncidentOpen},
		{"title", is.Alert.Title, title},
		{"description", is.Alert.Description, alert.Annotations["description"]},
		{"severity", is.Alert.Severity, severities[alert.Labels["severity"]]},
		{"hostname", is.Alert.Hostname, host},
		{"link", strings.Contains(is.Alert.Link, "/graph?g0.expr="), true},
	} {
		if field.have != field.want {
			wrong = append(wrong, fmt.Errorf("the %s is %v, not %v", field.name, field.have, field.want))
		}
	}
	// Prometheus sends milliseconds.
	if is.Alert.StartTime == nil || is.Alert.StartTime.Before(alert.ActiveAt.Truncate(time.Millisecond)) {
		wrong = append(wrong, fmt.Errorf("it starts at %v, before %v", is.Alert.StartTime, alert.ActiveAt))
	}
	return errors.Join(wrong...)
}

// counts compares the Incidents with the account of the relays: every alert that the manager acknowledged is
// counted once, none that it refused. Meanwhile no requests are let through.
func (r *rig) counts() {
	for _, w := range r.ways() {
		w.relay.close()
		defer w.relay.open()
	}
	r.drained()
	for _, w := range r.ways() {
		r.Await(testenv.WaitTimeout, func(ctx context.Context) error {
			wrong, err := loadgen.Check(ctx, r.Client, w.preset, w.preset, w.relay.account, 10)
			if err == nil && len(wrong) > 0 {
				err = fmt.Errorf("%s: %s", w.preset, strings.Join(wrong, "\n"))
			}
			return err
		})
	}
}

// repeated waits until each firing alert was acknowledged so many times more on each way.
func (r *rig) repeated(times int) {
	alerts, err := r.firingAlerts(r.Context)
	r.Must(err)
	for _, w := range r.ways() {
		before, _ := w.relay.account.Snapshot()
		r.Await(testenv.WaitTimeout, func(context.Context) error {
			again := 0
			now, _ := w.relay.account.Snapshot()
			for key, count := range now {
				if count >= before[key]+times {
					again++
				}
			}
			if again < len(alerts) {
				return fmt.Errorf("%s: %d of %d alerts were repeated", w.preset, again, len(alerts))
			}
			return nil
		})
	}
}

// givenUp is how many notifications Alertmanager has given up.
func (r *rig) givenUp(ctx context.Context) (float64, error) {
	total, series, err := testenv.Metric(ctx, "http://"+r.alertmanager+"/metrics",
		`alertmanager_notifications_failed_total\{[^}]*integration="webhook"[^}]*\}`)
	if err == nil && series == 0 {
		err = errors.New("among its metrics Alertmanager has none for failed notifications")
	}
	return total, err
}

func getJSON(ctx context.Context, address string, into any) error {
	body, err := testenv.Call(ctx, http.MethodGet, address, "")
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(body), into)
}

// names are the alerts that fire, as far as the steps tell them apart.
func (r *rig) names(ctx context.Context) ([]string, error) {
	alerts, err := r.firingAlerts(ctx)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, alert := range alerts {
		names[strings.TrimSpace(alert.Labels["alertname"]+" "+alert.Labels["device"])] = true
	}
	return slices.Sorted(maps.Keys(names)), nil
}
