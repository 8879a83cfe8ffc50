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
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/action"
	"github.com/tocsin-dev/tocsin/internal/live"
	"github.com/tocsin-dev/tocsin/internal/maintenance"
)

const (
	// maxWindow is the limit of the length of one window that is open once.
	maxWindow = 744 * time.Hour

	// clockMargin is how long before now a window starts, so that it is open at once if the API server's clock is behind.
	clockMargin = time.Minute
)

type maintenanceOptions struct {
	*plugin
	name            string
	length          time.Duration
	comment         string
	severities      []string
	labels          map[string]string
	allIntegrations bool
	dryRun          string
	allNamespaces   bool
}

func (p *plugin) maintenanceCommand() *cobra.Command {
	o := &maintenanceOptions{plugin: p}
	start := p.windowCommand("start INTEGRATION...", "Forward no new incidents of integrations for some time", o.start)
	start.ValidArgsFunction = p.completeOthers(p.completeIntegrations())
	flags := start.Flags()
	durationVar(flags, &o.length, "for", "Length of the window, such as 90m or 2d. Required.")
	flags.BoolVar(&o.allIntegrations, "all", false, "Mute all integrations of the namespace.")
	flags.StringVar(&o.comment, "comment", "", "Reason for the window.")
	flags.StringVar(&o.name, "name", "", "Name of the window. Default: the current date, such as 2026-05-04.")
	flags.Var(wordValue{enumeration: severityWords, list: &o.severities}, "severity", "Severities to mute. Default: all.")
	flags.StringToStringVarP(&o.labels, "label", "l", nil,
		"Mute incidents with these labels only, as `KEY=VALUE`, such as team=storage.")
	addDryRunFlag(flags, &o.dryRun)

	windows := p.completeNames(v1alpha1.GroupVersion.WithKind("MaintenanceWindowList"))
	end := p.windowCommand("end [NAME...]", "End maintenance windows", o.end)
	end.ValidArgsFunction = p.completeOthers(windows)
	addDryRunFlag(end.Flags(), &o.dryRun)

	skip := p.windowCommand("skip NAME", "Skip the next opening of a maintenance window that recurs", o.skip)
	skip.Args, skip.ValidArgsFunction = oneName("window"), firstArgument(windows)
	addDryRunFlag(skip.Flags(), &o.dryRun)

	list := p.windowCommand("list", "List maintenance windows", o.list)
	list.Aliases, list.Args = []string{"ls"}, takes(0, 0, "no argument")
	list.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "List windows in all namespaces.")

	return parent(&cobra.Command{
		Use:   "maintenance",
		Short: "Start, end, skip and list maintenance windows",
	}, start, end, skip, list)
}

func (p *plugin) windowCommand(use, short string, run func(context.Context, *cluster, []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, RunE: p.withCluster(run)}
}

func (o *maintenanceOptions) start(ctx context.Context, c *cluster, integrations []string) error {
	switch {
	case o.length <= 0 || o.length > maxWindow-clockMargin:
		return errors.New("specify the length of the window with --for, such as 2h; at most 30d")
	case o.allIntegrations == (len(integrations) > 0):
		return errors.New("specify integrations, or --all for all of the namespace")
	}
	for _, name := range integrations {
		if _, err := c.integration(ctx, name); err != nil {
			return err // a mistyped name would mute nothing
		}
	}
	windows, err := o.windows(ctx, c, c.namespace)
	if err != nil {
		return err
	}
	window := o.window(c.namespace, integrations)
	window.Name = freeName(o.name, o.now(), func(name string) bool { return find(windows, name) != nil })
	if window.Name == "" {
		return fmt.Errorf("there is a maintenance window %q: choose another name", o.name)
	}
	if o.dryRun != dryRunClient {
		if err := c.writer(o.dryRun).Create(ctx, window, action.FieldManager); err != nil {
			return err
		}
	}
	o.screen.printf("Maintenance window %q is open until %s%s.\n",
		window.Name, window.Spec.Once.EndTime.Local().Format(localTime), dryRunNotes[o.dryRun])
	return nil
}

// window returns the window that the flags describe, without a name.
func (o *maintenanceOptions) window(namespace string, integrations []string) *v1alpha1.MaintenanceWindow {
	window := &v1alpha1.MaintenanceWindow{}
	window.Namespace, window.Spec.Comment = namespace, o.comment
	window.Spec.Once = &v1alpha1.SingleOpening{
		StartTime: v1alpha1.NewTimestamp(o.now().Add(-clockMargin)), EndTime: v1alpha1.NewTimestamp(o.now().Add(o.length)),
	}
	if len(integrations) > 0 {
		window.Spec.Integrations = &v1alpha1.IntegrationSelection{Names: unique(integrations)}
	}
	if len(o.severities)+len(o.labels) > 0 {
		window.Spec.Match = &v1alpha1.MaintenanceMatch{}
		for _, severity := range unique(o.severities) {
			window.Spec.Match.Severities = append(window.Spec.Match.Severities, v1alpha1.Severity(severity))
		}
		if len(o.labels) > 0 {
			window.Spec.Match.Labels = labelValues(o.labels)
		}
	}
	return window
}

// unique returns words without those that came before.
func unique(words []string) (kept []string) {
	for _, word := range words {
		if !slices.Contains(kept, word) {
			kept = append(kept, word)
		}
	}
	return kept
}

// end deletes windows that are open once. One that recurs skips the rest of its opening: to delete it is left to kubectl.
func (o *maintenanceOptions) end(ctx context.Context, c *cluster, names []string) error {
	windows, err := o.windows(ctx, c, c.namespace)
	if err != nil {
		return err
	}
	ended, err := o.selected(names, windows)
	if err != nil {
		return err
	}
	for _, w := range ended {
		if w.Spec.Recurring == nil {
			err = o.remove(ctx, c, w)
		} else {
			err = o.skipUntil(ctx, c, w, o.now().Add(time.Second)) // also if it opens at this moment
		}
		if err != nil {
			return err
		}
		o.screen.printf("Ended maintenance window %q%s.\n", w.Name, dryRunNotes[o.dryRun])
	}
	return nil
}

func (o *maintenanceOptions) remove(ctx context.Context, c *cluster, w *v1alpha1.MaintenanceWindow) error {
	if o.dryRun == dryRunClient {
		return nil
	}
	return c.writer(o.dryRun).Delete(ctx, w, client.Preconditions{UID: &w.UID, ResourceVersion: &w.ResourceVersion})
}

// skipUntil has a window skip the openings that begin before a time.
func (o *maintenanceOptions) skipUntil(ctx context.Context, c *cluster, w *v1alpha1.MaintenanceWindow, until time.Time) error {
	if o.dryRun == dryRunClient {
		return nil
	}
	before := client.MergeFromWithOptions(w.DeepCopy(), client.MergeFromWithOptimisticLock{})
	w.Spec.Recurring.SkipUntil = new(v1alpha1.NewTimestamp(until))
	return c.writer(o.dryRun).Patch(ctx, w, before, action.FieldManager)
}

// selected returns the windows with these names, or else the only one that is open.
func (o *maintenanceOptions) selected(
	names []string, windows []v1alpha1.MaintenanceWindow,
) (selected []*v1alpha1.MaintenanceWindow, err error) {
	var open []string
	for _, opening := range maintenance.New(windows...).Open(o.now()) {
		open = append(open, opening.Window)
	}
	switch {
	case len(names) > 0:
	case len(open) == 0:
		return nil, errors.New("no maintenance window is open")
	case len(open) > 1:
		return nil, fmt.Errorf("several maintenance windows are open: specify one of %s", strings.Join(open, ", "))
	default:
		names = open
	}
	for _, name := range unique(names) {
		window := find(windows, name)
		switch {
		case window == nil:
			return nil, fmt.Errorf("there is no maintenance window %q; nothing was ended", name)
		case window.Spec.Recurring != nil && !slices.Contains(open, name):
			return nil, fmt.Errorf("maintenance window %q recurs and is not open; "+
				"\"kubectl tocsin maintenance skip\" skips its next opening", name)
		}
		selected = append(selected, window)
	}
	return selected, nil
}

// skip skips the next opening of a recurring window.
func (o *maintenanceOptions) skip(ctx context.Context, c *cluster, names []string) error {
	window := &v1alpha1.MaintenanceWindow{}
	err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: names[0]}, window)
	switch {
	case err != nil:
		return inNamespace(err, c.namespace)
	case window.Spec.Recurring == nil:
		return fmt.Errorf("maintenance window %q does not recur; \"kubectl tocsin maintenance end\" deletes it", window.Name)
	}
	compiled, err := maintenance.Compile(window.DeepCopy())
	if err != nil {
		return err
	}
	if from, _ := compiled.Opening(o.now()); !from.IsZero() {
		return fmt.Errorf("maintenance window %q is open; \"kubectl tocsin maintenance end\" ends this opening", window.Name)
	}
	skipped, _ := compiled.Next(o.now())
	next, _ := compiled.Next(skipped)
	if err := o.skipUntil(ctx, c, window, skipped.Add(time.Second)); err != nil {
		return err
	}
	o.screen.printf("Maintenance window %q skips the opening of %s%s. The next one is %s.\n",
		window.Name, skipped.Local().Format(localTime), dryRunNotes[o.dryRun], next.Local().Format(localTime))
	return nil
}

// find returns the window with a name; nil if there is none.
func find(windows []v1alpha1.MaintenanceWindow, name string) *v1alpha1.MaintenanceWindow {
	at := slices.IndexFunc(windows, func(w v1alpha1.MaintenanceWindow) bool { return w.Name == name })
	if at < 0 {
		return nil
	}
	return &windows[at]
}

func (o *maintenanceOptions) list(ctx context.Context, c *cluster, _ []string) error {
	f := &filter{allNamespaces: o.allNamespaces}
	windows, err := o.windows(ctx, c, f.namespace(c))
	switch {
	case err != nil:
		return err
	case len(windows) == 0:
		if err := o.verify(ctx, c, f, nil); err != nil {
			return err
		}
		o.notef("No maintenance windows found%s.", f.place(c))
		return nil
	}
	t := &table[v1alpha1.MaintenanceWindow]{screen: o.screen}
	if o.allNamespaces {
		t.add("NAMESPACE", 0, func(w v1alpha1.MaintenanceWindow) string { return w.Namespace })
	}
	t.add("NAME", 0, func(w v1alpha1.MaintenanceWindow) string { return w.Name })
	t.addCells("STATE", 0, o.state)
	t.add("TIMES", 0, times)
	t.add("INTEGRATIONS", 0, func(w v1alpha1.MaintenanceWindow) string { return safe(w.Status.Integrations) })
	t.add("MUTES", 0, mutes)
	t.add("COMMENT", 0, func(w v1alpha1.MaintenanceWindow) string { return safe(w.Spec.Comment) })
	return t.print(windows)
}

// windows returns the windows of a namespace; of all if it is empty.
func (o *maintenanceOptions) windows(
	ctx context.Context, c *cluster, namespace string,
) (all []v1alpha1.MaintenanceWindow, err error) {
	list := &v1alpha1.MaintenanceWindowList{}
	for page, err := range live.Pages(ctx, c, list, client.InNamespace(namespace), client.Limit(listChunk)) {
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
	}
	return all, nil
}

// state describes whether a window is open, and until or from when.
func (o *maintenanceOptions) state(w v1alpha1.MaintenanceWindow) cell {
	compiled, err := maintenance.Compile(&w)
	if err != nil {
		return cell{"Invalid", red}
	}
	now := o.now()
	if _, until := compiled.Opening(now); !until.IsZero() {
		return cell{"Open for " + duration.HumanDuration(until.Sub(now)), yellow}
	}
	from, _ := compiled.Next(now)
	if from.IsZero() {
		return cell{text: "Over"}
	}
	return cell{text: "Opens in " + duration.HumanDuration(from.Sub(now))}
}

// times describes when a window is open.
func times(w v1alpha1.MaintenanceWindow) string {
	once, recurring := w.Spec.Once, w.Spec.Recurring
	switch {
	case once != nil:
		return once.StartTime.Local().Format(localTime) + " to " + once.EndTime.Local().Format(localTime)
	case recurring == nil:
		return "-"
	}
	text := safe(recurring.Cron) + " " + cmp.Or(safe(recurring.TimeZone), "UTC")
	if recurring.Duration != nil {
		text += " for " + duration.HumanDuration(recurring.Duration.Duration)
	}
	return text
}

// mutes describes the Incidents that a window mutes.
func mutes(w v1alpha1.MaintenanceWindow) string {
	match := w.Spec.Match
	if match == nil {
		return "all"
	}
	var parts []string
	for _, severity := range match.Severities {
		parts = append(parts, string(severity))
	}
	for _, name := range slices.Sorted(maps.Keys(match.Labels)) {
		parts = append(parts, safe(name)+"="+safe(string(match.Labels[name])))
	}
	return cmp.Or(strings.Join(parts, ","), "all")
}

// muted describes the maintenance window that mutes the Incident.
func (d *description) muted(incident *v1alpha1.Incident) string {
	mute := incident.Status.Mute
	if mute == nil || incident.Status.State != v1alpha1.IncidentOpen {
		return ""
	}
	text := fmt.Sprintf("yes, by the maintenance window %s", safe(mute.Window))
	if mute.EndTime != nil {
		text += " until " + mute.EndTime.Local().Format(localTime)
	}
	if mute.ForwardedSeverity != "" {
		text += fmt.Sprintf(". People were told before, with severity %s, and will be told of its end", mute.ForwardedSeverity)
	}
	return text + "."
}
