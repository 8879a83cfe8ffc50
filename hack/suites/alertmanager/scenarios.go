package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// quietTime is how long nothing more may come after a story was told: longer than an Alertmanager waits for its peer.
const quietTime = groupInterval + 2*time.Second

// scenarios are run one after the other. The judge looks at all of them at the end.
var scenarios = []struct {
	name  string
	short bool
	run   func(ctx context.Context, r *rig) error
}{
	{"the configurations of the guide", false, guide},
	{"an alert fires, repeats, changes its severity and is resolved", true, lifecycle},
	{"an acknowledgement notifies nobody", false, acknowledge},
	{"a silence that was requested from Tocsin", false, silenceFromTocsin},
	{"a silence that was created in Alertmanager", false, silenceFromAlertmanager},
	{"an Incident that is reopened within 15 minutes", true, reopen},
	{"the leader is killed", false, killLeader},
	{"a zombie leader: it stands still, another takes over, it goes on", false, zombieLeader},
	{"one Alertmanager is down", false, oneDown},
	{"both Alertmanagers are down for 40 s, which stands for 10 min", false, bothDown},
	{"Tocsin is down for 40 s of a lease of 60 s, which stands for 10 of 15 min", false, tocsinDown},
	{"the leader's clock is an hour ahead", false, clockAhead},
	{"the leader's clock is an hour behind", false, clockBehind},
	{"an invalid file and an unknown host", false, badConfig},
	{"an Alertmanager that rejects one alert, answers 500, and hangs", false, badAlertmanager},
	{"50 transitions a second: from 202 to Alertmanager within 2 s", false, latency},
}

func lifecycle(ctx context.Context, r *rig) error {
	for range 5 { // four of them are repeats
		if err := r.post(ctx, "life", "warning", firing); err != nil {
			return err
		}
	}
	r.tell("life", "warning", firing)
	if err := r.told(ctx); err != nil {
		return err
	}
	if err := r.happens(ctx, "life", "critical", firing); err != nil {
		return err
	}
	r.tell("life", "warning", resolved)
	if err := r.told(ctx); err != nil {
		return err
	}
	return r.ends(ctx, "life", "critical")
}

// ends resolves an alert and waits until the receiver knows.
func (r *rig) ends(ctx context.Context, key, severity string) error {
	if err := r.happens(ctx, key, severity, resolved); err != nil {
		return err
	}
	return r.told(ctx)
}

// begins fires an alert and waits until the receiver knows.
func (r *rig) begins(ctx context.Context, key, severity string) error {
	if err := r.happens(ctx, key, severity, firing); err != nil {
		return err
	}
	return r.told(ctx)
}

// act creates an AlertEvent of a user about the Incident of a key.
func (r *rig) act(ctx context.Context, key string, alert v1alpha1.Alert) error {
	alert.By, alert.IncidentName = "maria", v1alpha1.IncidentName(namespace, key)
	return r.cluster.Client.Create(ctx, &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "act-"},
		Spec:       v1alpha1.AlertEventSpec{Alerts: []v1alpha1.Alert{alert}},
	})
}

// becomes waits until a condition of the Incident of a key has a reason.
func (r *rig) becomes(ctx context.Context, key, condition, reason string) error {
	return testenv.Await(ctx, waitTimeout, func(ctx context.Context) error {
		incident, err := r.incident(ctx, key)
		if err != nil {
			return err
		}
		if has := meta.FindStatusCondition(incident.Status.Conditions, condition); has == nil || has.Reason != reason {
			return fmt.Errorf("%s of %s is %+v, not %s", condition, key, has, reason)
		}
		return nil
	})
}

// quiet makes sure that the receiver is notified of nothing more.
func (r *rig) quiet(ctx context.Context) error {
	return r.unchanged(ctx, func() bool { return testenv.Pause(ctx, quietTime) })
}

func acknowledge(ctx context.Context, r *rig) error {
	if err := r.begins(ctx, "ack", "error"); err != nil {
		return err
	}
	if err := r.act(ctx, "ack", v1alpha1.Alert{Status: v1alpha1.AlertAcknowledged}); err != nil {
		return err
	}
	if err := r.becomes(ctx, "ack", v1alpha1.ConditionAcknowledged, v1alpha1.ReasonAcknowledgedByUser); err != nil {
		return err
	}
	if err := r.quiet(ctx); err != nil {
		return err
	}
	return r.ends(ctx, "ack", "error")
}

func silenceFromTocsin(ctx context.Context, r *rig) error {
	if err := r.begins(ctx, "silence", "critical"); err != nil {
		return err
	}
	silence := func(length time.Duration) error {
		return r.act(ctx, "silence", v1alpha1.Alert{Status: v1alpha1.AlertSilenced, SilenceFor: &metav1.Duration{Duration: length}, Comment: "maintenance"})
	}
	if err := silence(time.Hour); err != nil {
		return err
	}
	if err := r.becomes(ctx, "silence", v1alpha1.ConditionSilenced, v1alpha1.ReasonSilenced); err != nil {
		return err
	}
	// What happens now is nobody's business; the last state is what counts when the silence ends.
	for _, status := range []string{resolved, firing} {
		if err := r.post(ctx, "silence", "critical", status); err != nil {
			return err
		}
	}
	if err := r.quiet(ctx); err != nil {
		return err
	}
	if err := silence(0); err != nil {
		return err
	}
	if err := r.becomes(ctx, "silence", v1alpha1.ConditionSilenced, v1alpha1.ReasonNotSilenced); err != nil {
		return err
	}
	return r.ends(ctx, "silence", "critical")
}

func silenceFromAlertmanager(ctx context.Context, r *rig) error {
	if err := r.begins(ctx, "muted", "critical"); err != nil {
		return err
	}
	matcher := map[string]any{
		"name": v1alpha1.ForwardedLabel, "value": v1alpha1.IncidentName(namespace, "muted"), "isRegex": false, "isEqual": true,
	}
	body, err := json.Marshal(map[string]any{
		"matchers": []any{matcher}, "createdBy": "ops", "comment": "deploy",
		"startsAt": time.Now(), "endsAt": time.Now().Add(time.Hour),
	})
	if err != nil {
		return err
	}
	answer, err := testenv.Call(ctx, http.MethodPost, "http://"+r.addresses[0]+"/api/v2/silences", string(body))
	if err != nil {
		return err
	}
	if err := r.becomes(ctx, "muted", v1alpha1.ConditionSilenced, v1alpha1.ReasonSilenced); err != nil {
		return err
	}
	incident, err := r.incident(ctx, "muted")
	if err != nil {
		return err
	}
	if meta.IsStatusConditionTrue(incident.Status.Conditions, v1alpha1.ConditionAcknowledged) {
		return errors.New("the silence acknowledged the Incident")
	}
	var created struct{ SilenceID string }
	if err := json.Unmarshal([]byte(answer), &created); err != nil {
		return err
	}
	_, err = testenv.Call(ctx, http.MethodDelete, "http://"+r.addresses[1]+"/api/v2/silence/"+created.SilenceID, "")
	if err != nil {
		return err
	}
	if err := r.becomes(ctx, "muted", v1alpha1.ConditionSilenced, v1alpha1.ReasonNotSilenced); err != nil {
		return err
	}
	return r.ends(ctx, "muted", "critical")
}

func reopen(ctx context.Context, r *rig) error {
	for range 2 {
		if err := r.begins(ctx, "again", "critical"); err != nil {
			return err
		}
		if err := r.ends(ctx, "again", "critical"); err != nil {
			return err
		}
	}
	return r.quiet(ctx)
}
