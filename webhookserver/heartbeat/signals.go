package heartbeat

import (
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/feature"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=heartbeats,verbs=get;list;watch
// +kubebuilder:rbac:groups=tocsin.dev,resources=heartbeats/status,verbs=patch

// Signal says that a heartbeat was heard.
type Signal struct {
	Heartbeat *v1alpha1.Heartbeat // as the cache has it
	Kind      v1alpha1.SignalKind
	Time      time.Time // by the API server's clock
	Exit      int64     // the exit code of a failure, 0 if the sender gave none
}

// Object implements feature.Report.
func (s Signal) Object() client.Object { return s.Heartbeat }

// AddTo implements feature.Report.
func (s Signal) AddTo(waiting feature.Reports) (all feature.Reports, due time.Time) {
	heard, ok := waiting.(signals)
	if !ok || heard.uid != s.Heartbeat.UID {
		heard = signals{uid: s.Heartbeat.UID}
	}
	due = heard.hear(s)
	return heard, due
}

// signals are what is to be written to the status of a heartbeat.
type signals struct {
	heardTimes
	uid     types.UID // what another heartbeat of its name was told is not for it
	failure time.Time // the time that a failure got which was written; zero: none was
}

// Write implements feature.Reports.
func (s signals) Write(
	fields map[string]any, object client.Object, now time.Time, all bool,
) (written feature.Reports, due time.Time, err error) {
	h, ok := object.(*v1alpha1.Heartbeat)
	if !ok || h.UID != s.uid {
		return nil, due, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("heartbeats").GroupResource(), object.GetName())
	}
	var changed bool
	due, s.failure, changed = s.mergeInto(h, now)
	if recheck := now.Add(signalRecheck); recheck.Before(due) {
		due = recheck
	}
	switch status := &h.Status; {
	case changed && !all && due.After(now):
		return nil, due, nil
	case changed:
		maps.Copy(fields, map[string]any{
			"lastSignalTime": status.LastSignalTime, "lastStartTime": status.LastStartTime, "lastDuration": status.LastDuration,
			"nextDueTime": status.NextDueTime, "failedTime": status.FailedTime, "exitCode": status.ExitCode, "signals": status.Signals,
		})
	}
	return s, time.Time{}, nil
}

// Without implements feature.Reports.
func (s signals) Without(others feature.Reports) feature.Reports {
	if written, ok := others.(signals); ok {
		s.subtract(written.heardTimes, written.failure)
	}
	if (s.heardTimes == heardTimes{}) {
		return nil
	}
	return s
}
