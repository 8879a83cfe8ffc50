package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/maintenance"
)

const (
	// maxWindows is the limit of spec.maintenance, and maxWindow that of one window.
	maxWindows = 20
	maxWindow  = 744 * time.Hour

	// clockMargin is how long before now a window starts, so that it is open at once if the API server's clock is behind.
	clockMargin = time.Minute
)

type maintenanceOptions struct {
	*plugin
	name          string
	length        time.Duration
	comment       string
	severities    []string
	labels        map[string]string
	dryRun        string
	allNamespaces bool
}

func (p *plugin) maintenanceCommand() *cobra.Command {
	o := &maintenanceOptions{plugin: p}
	start := p.ofIntegration("start INTEGRATION", "Forward no new incidents of an integration for some time", nil, o.start)
	flags := start.Flags()
	durationVar(flags, &o.length, "for", "Length of the window, such as 90m or 2d. Required.")
	flags.StringVar(&o.comment, "comment", "", "Reason for the window.")
	flags.StringVar(&o.name, "name", "", "Name of the window. Default: the current date, such as 2026-05-04.")
	flags.Var(wordValue{enumeration: severityWords, list: &o.severities}, "severity", "Severities to mute. Default: all.")
	flags.StringToStringVarP(&o.labels, "label", "l", nil,
		"Mute incidents with these labels only, as `KEY=VALUE`, such as team=storage.")
	addDryRunFlag(flags, &o.dryRun)

	end := p.ofIntegration("end INTEGRATION [NAME...]", "End maintenance windows of an integration", allWindows, o.end)
	addDryRunFlag(end.Flags(), &o.dryRun)

	skip := p.ofIntegration("skip INTEGRATION NAME", "Skip the next opening of a maintenance window that recurs",
		recurringWindows, o.skip)
	skip.Args = takes(2, 2, "the names of an integration and a window")
	addDryRunFlag(skip.Flags(), &o.dryRun)

	list := p.ofIntegration("list [INTEGRATION]", "List maintenance windows", nil, o.list)
	list.Aliases = []string{"ls"}
	list.Args = takes(0, 1, "at most one integration name")
	list.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "List windows in all namespaces.")

	return parent(&cobra.Command{
		Use:   "maintenance",
		Short: "Start, end, skip and list maintenance windows of integrations",
	}, start, end, skip, list)
}

func (o *maintenanceOptions) start(ctx context.Context, c *cluster, names []string) error {
	if o.length <= 0 || o.length > maxWindow-clockMargin {
		return errors.New("specify the length of the window with --for, such as 2h; at most 30d")
	}
	window := o.window()
	err := c.editIntegration(ctx, names[0], o.dryRun, func(integration *v1alpha1.WebhookIntegration) error {
		spec := &integration.Spec
		if len(spec.Maintenance) >= maxWindows {
			spec.Maintenance = slices.DeleteFunc(spec.Maintenance, func(w v1alpha1.MaintenanceWindow) bool { // those that are over
				return w.Schedule == "" && w.EndTime != nil && !o.now().Before(w.EndTime.Time)
			})
		}
		if windows := len(spec.Maintenance); windows >= maxWindows {
			return fmt.Errorf("integration %q has %d maintenance windows, which is the limit: remove one", names[0], windows)
		}
		window.Name = freeName(o.name, o.now(), func(name string) bool {
			return slices.ContainsFunc(spec.Maintenance, func(w v1alpha1.MaintenanceWindow) bool { return w.Name == name })
		})
		if window.Name == "" {
			return fmt.Errorf("integration %q has a maintenance window %q: choose another name", names[0], o.name)
		}
		spec.Maintenance = append(spec.Maintenance, window)
		return nil
	})
	if err != nil {
		return err
	}
	o.screen.printf("Maintenance window %q of integration %q is open until %s%s.\n",
		window.Name, names[0], window.EndTime.Local().Format(localTime), dryRunNotes[o.dryRun])
	return nil
}

// window returns the window that the flags describe, without a name.
func (o *maintenanceOptions) window() v1alpha1.MaintenanceWindow {
	window := v1alpha1.MaintenanceWindow{
		StartTime: new(v1alpha1.NewTimestamp(o.now().Add(-clockMargin))), EndTime: new(v1alpha1.NewTimestamp(o.now().Add(o.length))),
		Comment: o.comment,
	}
	if len(o.severities)+len(o.labels) == 0 {
		return window
	}
	window.Match = &v1alpha1.MaintenanceMatch{Labels: labelValues(o.labels)}
	for _, severity := range o.severities {
		if !slices.Contains(window.Match.Severities, v1alpha1.Severity(severity)) {
			window.Match.Severities = append(window.Match.Severities, v1alpha1.Severity(severity))
		}
	}
	return window
}

// end removes windows that are open once. One that recurs skips the rest of its opening: to remove it is left to an editor of the
// integration.
func (o *maintenanceOptions) end(ctx context.Context, c *cluster, args []string) error {
	var names []string
	err := c.editIntegration(ctx, args[0], o.dryRun, func(integration *v1alpha1.WebhookIntegration) (err error) {
		windows := integration.Spec.Maintenance
		if names, err = o.selected(args[0], args[1:], windows); err != nil {
			return err
		}
		ended := func(w v1alpha1.MaintenanceWindow) bool { return slices.Contains(names, w.Name) }
		for i := range windows {
			if w := &windows[i]; ended(*w) && w.Schedule != "" {
				w.SkipUntil = new(v1alpha1.NewTimestamp(o.now().Add(time.Second))) // also if it opens at this moment
			}
		}
		integration.Spec.Maintenance = slices.DeleteFunc(windows, func(w v1alpha1.MaintenanceWindow) bool {
			return ended(w) && w.Schedule == ""
		})
		return nil
	})
	if err != nil {
		return err
	}
	o.screen.printf("Ended maintenance window \"%s\" of integration %q%s.\n",
		strings.Join(names, `", "`), args[0], dryRunNotes[o.dryRun])
	return nil
}

// selected returns the windows with these names, or else the only one that is open.
func (o *maintenanceOptions) selected(
	integration string, names []string, windows []v1alpha1.MaintenanceWindow,
) ([]string, error) {
	var open []string
	for _, opening := range maintenance.New(windows).Open(o.now()) {
		open = append(open, opening.Window)
	}
	switch {
	case len(names) > 0:
	case len(open) == 0:
		return nil, fmt.Errorf("no maintenance window of integration %q is open", integration)
	case len(open) > 1:
		return nil, fmt.Errorf("integration %q has several open maintenance windows: specify one of %s",
			integration, strings.Join(open, ", "))
	default:
		names = open
	}
	for _, name := range names {
		window, err := windowNamed(windows, integration, name)
		if err != nil {
			return nil, fmt.Errorf("%w; nothing was ended", err)
		}
		if window.Schedule != "" && !slices.Contains(open, name) {
			return nil, fmt.Errorf("maintenance window %q recurs and is not open; "+
				"\"kubectl tocsin maintenance skip\" skips its next opening", name)
		}
	}
	return names, nil
}

// skip skips the next opening of a recurring window.
func (o *maintenanceOptions) skip(ctx context.Context, c *cluster, args []string) error {
	var skipped, next time.Time
	err := c.editIntegration(ctx, args[0], o.dryRun, func(integration *v1alpha1.WebhookIntegration) error {
		window, err := windowNamed(integration.Spec.Maintenance, args[0], args[1])
		switch {
		case err != nil:
			return err
		case window.Schedule == "":
			return fmt.Errorf("maintenance window %q does not recur; \"kubectl tocsin maintenance end\" removes it", args[1])
		}
		plan := maintenance.New([]v1alpha1.MaintenanceWindow{*window})
		skipped = plan.Next(o.now())
		switch {
		case plan.Err() != nil:
			return plan.Err()
		case len(plan.Open(o.now())) > 0:
			return fmt.Errorf("maintenance window %q is open; \"kubectl tocsin maintenance end\" ends this opening", args[1])
		}
		window.SkipUntil = new(v1alpha1.NewTimestamp(skipped.Add(time.Second)))
		next = maintenance.New([]v1alpha1.MaintenanceWindow{*window}).Next(o.now())
		return nil
	})
	if err != nil {
		return err
	}
	o.screen.printf("Maintenance window %q of integration %q skips the opening of %s%s. The next one is %s.\n",
		args[1], args[0], skipped.Local().Format(localTime), dryRunNotes[o.dryRun], next.Local().Format(localTime))
	return nil
}

// windowNamed returns a window of an integration.
func windowNamed(windows []v1alpha1.MaintenanceWindow, integration, name string) (*v1alpha1.MaintenanceWindow, error) {
	at := slices.IndexFunc(windows, func(w v1alpha1.MaintenanceWindow) bool { return w.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("integration %q has no maintenance window %q", integration, name)
	}
	return &windows[at], nil
}

// allWindows returns the names of all windows.
func allWindows(spec *v1alpha1.WebhookIntegrationSpec) (names []string) {
	for i := range spec.Maintenance {
		names = append(names, spec.Maintenance[i].Name)
	}
	return names
}

// recurringWindows returns the names of the windows that recur.
func recurringWindows(spec *v1alpha1.WebhookIntegrationSpec) (names []string) {
	for i := range spec.Maintenance {
		if w := &spec.Maintenance[i]; w.Schedule != "" {
			names = append(names, w.Name)
		}
	}
	return names
}

// listedWindow is a window of an integration.
type listedWindow struct {
	metav1.ObjectMeta // of the integration
	*v1alpha1.MaintenanceWindow
}

func (o *maintenanceOptions) list(ctx context.Context, c *cluster, names []string) error {
	windows, err := o.windows(ctx, c, names)
	if err != nil {
		return err
	}
	if len(windows) == 0 {
		o.notef("No maintenance windows found.")
		return nil
	}
	t := &table[listedWindow]{screen: o.screen}
	if o.allNamespaces {
		t.add("NAMESPACE", 0, func(w listedWindow) string { return w.Namespace })
	}
	t.add("INTEGRATION", 0, func(w listedWindow) string { return w.ObjectMeta.Name })
	t.add("NAME", 0, func(w listedWindow) string { return w.MaintenanceWindow.Name })
	t.addCells("STATE", 0, o.state)
	t.add("TIMES", 0, times)
	t.add("MUTES", 0, mutes)
	t.add("COMMENT", 0, func(w listedWindow) string { return safe(w.Comment) })
	return t.print(windows)
}

// windows returns the windows of one integration, or of all.
func (o *maintenanceOptions) windows(ctx context.Context, c *cluster, names []string) (windows []listedWindow, err error) {
	var integrations []v1alpha1.WebhookIntegration
	switch {
	case len(names) == 0:
		integrations, err = o.integrations(ctx, c, &filter{allNamespaces: o.allNamespaces})
	case o.allNamespaces:
		err = errors.New("an integration has one namespace: omit --all-namespaces")
	default:
		var integration *v1alpha1.WebhookIntegration
		integration, err = c.integration(ctx, names[0])
		integrations = []v1alpha1.WebhookIntegration{*integration}
	}
	for i := range integrations {
		integration := &integrations[i]
		for j := range integration.Spec.Maintenance {
			windows = append(windows, listedWindow{integration.ObjectMeta, &integration.Spec.Maintenance[j]})
		}
	}
	return windows, err
}

// state describes whether a window is open, and until or from when.
func (o *maintenanceOptions) state(w listedWindow) cell {
	plan, now := maintenance.New([]v1alpha1.MaintenanceWindow{*w.MaintenanceWindow}), o.now()
	switch open, next := plan.Open(now), plan.Next(now); {
	case plan.Err() != nil:
		return cell{"Invalid", red}
	case len(open) > 0:
		return cell{"Open for " + duration.HumanDuration(open[0].Until.Sub(now)), yellow}
	case next.IsZero():
		return cell{text: "Over"}
	default:
		return cell{text: "Opens in " + duration.HumanDuration(next.Sub(now))}
	}
}

// times describes when a window is open.
func times(w listedWindow) string {
	if w.Schedule == "" {
		if w.StartTime == nil || w.EndTime == nil {
			return "-"
		}
		return w.StartTime.Local().Format(localTime) + " to " + w.EndTime.Local().Format(localTime)
	}
	text := safe(w.Schedule) + " " + cmp.Or(safe(w.TimeZone), "UTC")
	if w.Duration != nil {
		text += " for " + duration.HumanDuration(w.Duration.Duration)
	}
	return text
}

// mutes describes the Incidents that a window mutes.
func mutes(w listedWindow) string {
	if w.Match == nil {
		return "all"
	}
	var parts []string
	for _, severity := range w.Match.Severities {
		parts = append(parts, string(severity))
	}
	for _, name := range slices.Sorted(maps.Keys(w.Match.Labels)) {
		parts = append(parts, safe(name)+"="+safe(string(w.Match.Labels[name])))
	}
	return cmp.Or(strings.Join(parts, ","), "all")
}
