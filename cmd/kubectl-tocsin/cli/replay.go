package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/webhookserver"
	"github.com/tocsin-dev/tocsin/webhookserver/capture"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// replayError reports that captured requests could not be compared. Its exit code is not that of a difference, as with kubectl
// diff.
type replayError struct{ error }

func (e replayError) Unwrap() error { return e.error }

// replay is the captured requests of an integration, as it processes them and, with a file, as that would.
type replay struct {
	Integration string            `json:"integration"` // namespace/name
	LeftOut     int64             `json:"leftOut,omitempty"`
	Differing   int               `json:"differing"`
	Requests    []replayedRequest `json:"requests"`

	compares bool // there is a file
}

type replayedRequest struct {
	Time     v1alpha1.Timestamp `json:"time"`
	Code     int64              `json:"code"` // of the answer to the sender
	Error    string             `json:"error,omitempty"`
	Current  []outcome          `json:"current"`
	Proposed []outcome          `json:"proposed,omitempty"` // only with a file
	Differs  bool               `json:"differs,omitempty"`
}

// outcome is what becomes of an alert, a failure of an expression, or that of a request that is rejected.
type outcome struct {
	Effect   string            `json:"effect"` // the status of the alert, else dropped, failed or rejected
	Key      string            `json:"dedupKey,omitempty"`
	Severity v1alpha1.Severity `json:"severity,omitempty"`
	Title    string            `json:"title,omitempty"`
	Detail   string            `json:"detail,omitempty"` // why, if it is no alert that is stored

	fields map[string]json.RawMessage // the other ones of the alert
}

const (
	effectDropped  = "dropped"
	effectFailed   = "failed"
	effectRejected = "rejected"
)

func (o *explainOptions) runReplay(ctx context.Context, names []string) error {
	r, err := o.replay(ctx, names)
	switch {
	case err != nil:
		return replayError{err}
	case o.output != "":
		err = writeObject(o.Out, o.output, r)
	default:
		o.printReplay(r)
		err = o.screen.err
	}
	if err != nil {
		return replayError{err}
	}
	if r.Differing > 0 {
		return silentError{}
	}
	return nil
}

func (o *explainOptions) replay(ctx context.Context, names []string) (*replay, error) {
	c, err := o.cluster()
	if err != nil {
		return nil, err
	}
	name := cmp.Or(append(names, o.integration)...)
	var proposed *v1alpha1.WebhookIntegration
	if o.file != "" {
		if proposed, err = readManifest(ctx, o.file); err != nil {
			return nil, err
		}
		if c.explicit && proposed.Namespace != "" && proposed.Namespace != c.namespace {
			return nil, fmt.Errorf("the namespace of the integration in %s is %q, and not %q", o.file, proposed.Namespace, c.namespace)
		}
		c.namespace, name = cmp.Or(proposed.Namespace, c.namespace), cmp.Or(name, proposed.Name)
		if _, err := mapping.Compile(mapping.PresetOf(&proposed.Spec), proposed.Spec.Mapping); err != nil {
			return nil, fmt.Errorf("the mapping does not compile: %w", err)
		}
	}
	if name == "" {
		return nil, errors.New("specify an integration, or a file with one by --filename")
	}
	current, err := c.integration(ctx, name)
	if err != nil {
		return nil, err
	}
	reader, err := readerOf(ctx, c, current)
	if err != nil {
		return nil, err
	}
	kept, err := c.captured(ctx, current)
	if err != nil {
		return nil, err
	}
	if proposed != nil { // as one of the same name
		proposed.Namespace, proposed.Name = current.Namespace, current.Name
	}
	return newReplay(ctx, kept, reader, proposed), nil
}

// captured returns the captured requests of an integration.
func (c *cluster) captured(ctx context.Context, w *v1alpha1.WebhookIntegration) (*v1alpha1.RequestCapture, error) {
	found := &v1alpha1.RequestCapture{}
	err := c.Get(ctx, client.ObjectKeyFromObject(w), found)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return nil, err
	case w.Spec.Capture == nil:
		return nil, fmt.Errorf("the integration %s captures no requests: set spec.capture to {payloads: 20}, say, "+
			"and wait for the next ones", w.Name)
	case err != nil, len(found.Spec.Requests) == 0:
		return nil, fmt.Errorf("no request of the integration %s has been captured yet: one is stored within seconds, unless %d "+
			"integrations of the namespace or %d in all are captured already, as a Kubernetes Event CaptureFailed of the integration says",
			w.Name, capture.MaxOfNamespace, capture.MaxIntegrations)
	}
	return found, nil
}

// newReplay processes captured requests. proposed may be nil.
func newReplay(
	ctx context.Context, kept *v1alpha1.RequestCapture, current webhookserver.Reader, proposed *v1alpha1.WebhookIntegration,
) *replay {
	r := &replay{Integration: current.Namespace + "/" + current.Name, LeftOut: kept.Spec.LeftOut, compares: proposed != nil}
	for i := range kept.Spec.Requests {
		stored := &kept.Spec.Requests[i]
		replayed := replayedRequest{Time: stored.Time, Code: stored.Code, Current: []outcome{}}
		request, err := capture.Decode(stored)
		if err != nil {
			replayed.Error = err.Error()
		} else {
			replayed.Current, replayed.Proposed = compare(ctx, current, proposed, request)
		}
		if err == nil && proposed != nil {
			replayed.Differs = !slices.EqualFunc(replayed.Current, replayed.Proposed, outcome.equal)
		}
		if replayed.Differs {
			r.Differing++
		}
		r.Requests = append(r.Requests, replayed)
	}
	return r
}

// compare returns what two integrations make of a request, both with the limit of bodies that the operator has. proposed may be
// nil.
func compare(
	ctx context.Context, current webhookserver.Reader, proposed *v1alpha1.WebhookIntegration, request *capture.Request,
) (now, then []outcome) {
	current.WebhookIntegration = awake(current.WebhookIntegration)
	limit := webhookserver.ReplayLimit(ctx, current, request)
	now = outcomes(ctx, current, request, limit)
	if proposed != nil {
		then = outcomes(ctx, webhookserver.Reader{WebhookIntegration: awake(proposed), Features: current.Features}, request, limit)
	}
	return now, then
}

// awake returns the integration as it is when it is not suspended.
func awake(w *v1alpha1.WebhookIntegration) *v1alpha1.WebhookIntegration {
	awake := *w
	awake.Spec.Suspend = false
	return &awake
}

// outcomes returns what an integration makes of a request: its alerts in their order, and the expressions that fail.
func outcomes(ctx context.Context, reader webhookserver.Reader, request *capture.Request, limit int64) []outcome {
	code, answer, failures := webhookserver.Replay(ctx, reader, request, limit)
	r, err := parseResponse(code, answer)
	if err != nil {
		return []outcome{{Effect: effectRejected, Detail: strings.TrimPrefix(err.Error(), "rejected with ")}}
	}
	event := r.event(reader.WebhookIntegration)
	event.Spec.ReceivedTime = v1alpha1.NewTimestamp(request.Time)
	incidents := fold.Preview(event, reader.WebhookIntegration, mapping.PresetWindows{}, request.Time)
	all := []outcome{}
	for i := range r.Alerts {
		all = append(all, r.Alerts[i].outcome(incidents))
	}
	for _, failure := range failures {
		all = append(all, outcome{Effect: effectFailed, Detail: failure.Field + ": " + failure.Message})
	}
	return all
}

// outcome returns what becomes of an alert. The Incident that it opens may have a severity and a title that the alert lacks.
func (a *alertResponse) outcome(incidents []v1alpha1.Incident) outcome {
	if a.Dropped {
		return outcome{Effect: effectDropped, Detail: a.dropReason()}
	}
	o := outcome{Effect: string(a.Status), Key: a.DedupKey, Severity: a.Alert.Severity, Title: a.Alert.Title}
	if v1alpha1.IsGeneratedKey(o.Key) { // each evaluation generates another one
		o.Key = ""
	}
	for i := range incidents {
		if incident := &incidents[i]; incident.Namespace+"/"+incident.Name == a.Incident {
			o.Severity = cmp.Or(o.Severity, incident.Status.Alert.Severity)
			o.Title = cmp.Or(o.Title, incident.Status.Alert.Title)
		}
	}
	rest := *a.Alert
	rest.ID, rest.IncidentName, rest.DedupKey, rest.Status, rest.Severity, rest.Title = "", "", "", "", "", ""
	encoded, err := json.Marshal(rest)
	if err != nil || json.Unmarshal(encoded, &o.fields) != nil {
		o.fields = nil // cannot happen: it came from JSON
	}
	return o
}

func (o outcome) equal(other outcome) bool {
	return o.isSameLine(other) && len(o.otherFields(other)) == 0
}

// isSameLine reports whether two outcomes are printed alike.
func (o outcome) isSameLine(other outcome) bool {
	return o.Effect == other.Effect && o.Key == other.Key && o.Severity == other.Severity && o.Title == other.Title &&
		o.Detail == other.Detail
}

// otherFields returns the names of the fields that are not printed and that differ.
func (o outcome) otherFields(other outcome) (names []string) {
	all := maps.Clone(o.fields)
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	maps.Copy(all, other.fields)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if string(o.fields[name]) != string(other.fields[name]) {
			names = append(names, name)
		}
	}
	return names
}

// incidentsOf returns how many Incidents the alerts that fire would open. Alerts without a key have one each.
func incidentsOf(requests []replayedRequest, of func(*replayedRequest) []outcome) int {
	keys, keyless := map[string]bool{}, 0
	for i := range requests {
		for _, one := range of(&requests[i]) {
			switch {
			case one.Effect != string(v1alpha1.AlertFiring):
			case one.Key == "":
				keyless++
			default:
				keys[one.Key] = true
			}
		}
	}
	return len(keys) + keyless
}

// printReplay prints what becomes of each request or, with a file, of those that would become something else.
func (o *explainOptions) printReplay(r *replay) {
	s := o.screen
	for i := range r.Requests {
		request := &r.Requests[i]
		if r.compares && !request.Differs && request.Error == "" {
			continue
		}
		s.printf("%s\n", s.styled(bold, fmt.Sprintf("%s, answered with %d:", request.Time.Local().Format(localTime), request.Code)))
		switch {
		case request.Error != "":
			s.printf("  %s\n", safe(request.Error))
		case r.compares:
			s.printDifference(request.Current, request.Proposed)
		case len(request.Current) == 0:
			s.printf("  no alert\n")
		default:
			s.printOutcomes("  ", plain, request.Current)
		}
		s.printf("\n")
	}
	before := incidentsOf(r.Requests, func(one *replayedRequest) []outcome { return one.Current })
	total := plural(len(r.Requests), "request") + " of " + safe(r.Integration)
	if r.compares {
		after := incidentsOf(r.Requests, func(one *replayedRequest) []outcome { return one.Proposed })
		s.printf("Differing: %d of %s. Incidents that would open: %d now, %d with the change.\n", r.Differing, total, before, after)
	} else {
		s.printf("%s. Incidents that would open: %d.\n", total, before)
	}
	if r.LeftOut > 0 {
		o.notef("Left out of the capture, because of the size or a token in the path: %s.", plural(int(r.LeftOut), "request"))
	}
}

// printDifference prints the outcomes that differ. As many as before are compared one by one, in the order of the payload.
func (s *screen) printDifference(before, after []outcome) {
	if len(before) != len(after) {
		has := func(all []outcome) func(outcome) bool {
			return func(one outcome) bool { return slices.ContainsFunc(all, one.equal) }
		}
		removed, added := slices.DeleteFunc(slices.Clone(before), has(after)), slices.DeleteFunc(slices.Clone(after), has(before))
		if len(removed)+len(added) > 0 {
			s.printOutcomes("- ", red, removed)
			s.printOutcomes("+ ", green, added)
			return
		}
		s.printf("  %s instead of %d, some of them alike\n", plural(len(after), "alert"), len(before))
		return
	}
	for i := range before {
		if before[i].isSameLine(after[i]) {
			if names := before[i].otherFields(after[i]); len(names) > 0 {
				s.printOutcomes("  ", plain, after[i:i+1])
				s.printf("    differs in %s\n", safe(strings.Join(names, ", ")))
			}
			continue
		}
		s.printOutcomes("- ", red, before[i:i+1])
		s.printOutcomes("+ ", green, after[i:i+1])
	}
}

// printOutcomes prints a line for each outcome.
func (s *screen) printOutcomes(sign string, look style, all []outcome) {
	const effectCells, severityCells, keyCells, maxKey, maxTitle = 12, 8, 24, 80, 60
	for _, one := range all {
		line := sign + runewidth.FillRight(one.Effect, effectCells) + "  "
		if one.Detail != "" {
			line += safe(one.Detail)
		} else {
			key := cut(cmp.Or(safe(one.Key), "(generated key)"), maxKey)
			line += runewidth.FillRight(cmp.Or(string(one.Severity), "-"), severityCells) + "  " +
				runewidth.FillRight(key, keyCells) + "  " + cut(safe(one.Title), maxTitle)
		}
		s.printf("%s\n", s.styled(look, strings.TrimRight(line, " ")))
	}
}

// addReplay has explain process captured requests with the flag --replay.
func (o *explainOptions) addReplay(command *cobra.Command) {
	replays, explain := false, command.RunE
	command.Flags().BoolVar(&replays, "replay", false,
		"Process the captured requests of an integration, and compare with the integration in the file.")
	for _, other := range []string{"manifest", "preset", "preset-file", "header", "strict"} {
		command.MarkFlagsMutuallyExclusive("replay", other)
	}
	command.Args = func(command *cobra.Command, args []string) error {
		if replays {
			return takes(0, 1, "at most one integration name")(command, args)
		}
		return noArguments(command, args)
	}
	command.ValidArgsFunction = firstArgument(o.completeIntegrations())
	command.RunE = func(command *cobra.Command, args []string) error {
		if replays {
			return o.runReplay(command.Context(), args)
		}
		return explain(command, args)
	}
}
