// Package silence checks, awaits and describes silences in Alertmanager for the plugin.
package silence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/internal/silences"
)

// Timeout bounds the wait for a silence.
const Timeout = silences.Timeout

// CheckLength checks the length of a silence as the API server would, if a report with the status requests one.
func CheckLength(status v1alpha1.AlertStatus, length time.Duration) error {
	if status == v1alpha1.AlertSilenced && length > v1alpha1.MaxSilence {
		return fmt.Errorf("a silence has at most %s", model.Duration(v1alpha1.MaxSilence))
	}
	return nil
}

// Check returns an error if a report with the status requests a silence, and one of the Incidents cannot have it.
func Check(
	ctx context.Context, c client.Reader, status v1alpha1.AlertStatus, length time.Duration, incidents []*v1alpha1.Incident,
) error {
	batch := silences.NewBatch(status, length)
	for _, incident := range incidents {
		if err := batch.Check(ctx, c, incident); err != nil {
			return err
		}
	}
	return nil
}

// Await waits until Alertmanager has the silence of a length that was requested and folded, or until the one that the request
// ended is gone. It returns what is to be added to the success, or an error that says what is so when ctx ends after a timeout.
func Await(
	ctx context.Context, c client.Reader, length time.Duration, before *v1alpha1.Incident, timeout time.Duration,
) (but string, err error) {
	but, err = await(ctx, c, length, before)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("%s: timed out after %s; %w", before.Name, timeout, err)
	case err != nil:
		err = fmt.Errorf("%s: %w", before.Name, err)
	}
	return but, err
}

func await(ctx context.Context, c client.Reader, length time.Duration, before *v1alpha1.Incident) (but string, err error) {
	awaited := silences.Awaited{Length: length, Before: before}
	err = wait.PollUntilContextCancel(ctx, silences.Poll, true, func(ctx context.Context) (bool, error) {
		now := &v1alpha1.Incident{}
		err := c.Get(ctx, client.ObjectKeyFromObject(before), now)
		return err == nil && awaited.IsSettled(now), err
	})
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", awaited.Overdue()
	case err != nil:
		return "", err
	}
	condition, err := awaited.Result()
	switch {
	case condition == nil:
		return "", err
	case length == 0 && condition.Status == metav1.ConditionTrue:
		return ", but another silence covers it: " + plaintext.SanitizeLine(condition.Message), nil
	case length > 0 && condition.Status != metav1.ConditionTrue:
		return ", and not forwarded meanwhile, because of a maintenance window or forwardAfter", nil
	}
	return "", nil
}

// Done describes what a request for a silence of a length has done to an Incident.
func Done(length time.Duration) string {
	if length == 0 {
		return "unsilenced"
	}
	return "silenced for " + model.Duration(length).String()
}

// Describe describes the silence of an Incident in Alertmanager, and the one that was requested. layout is for times, and aged
// formats one with its age.
func Describe(
	incident *v1alpha1.Incident, now time.Time, layout string, aged func(*v1alpha1.Timestamp) string,
) string {
	condition := meta.FindStatusCondition(incident.Status.Conditions, v1alpha1.ConditionSilenced)
	if condition == nil {
		return ""
	}
	if silences.IsSilenced(incident) {
		text := "yes. " + plaintext.SanitizeLine(condition.Message)
		if covering := incident.Status.SilencedBy; covering != nil && !covering.EndTime.After(now) {
			text += " That time has passed; Alertmanager has not confirmed the end."
		}
		return text
	}
	text := "no. " + plaintext.SanitizeLine(condition.Message)
	if request := incident.Status.Silence; request != nil {
		by := cmp.Or(plaintext.SanitizeLine(request.By), "an AlertEvent")
		if request.EndTime.After(now) {
			text += fmt.Sprintf(" Requested until %s by %s.", request.EndTime.Local().Format(layout), by)
		} else {
			text += fmt.Sprintf(" The one that %s requested has expired at %s.", by, aged(&request.EndTime))
		}
	}
	return text
}

// Address returns the address of the silence that covers an Incident, or its ID if the address is not known.
func Address(status *v1alpha1.IncidentStatus) string {
	if status.SilencedBy == nil {
		return ""
	}
	return plaintext.SanitizeLine(cmp.Or(status.SilencedBy.Link, status.SilencedBy.ID))
}
