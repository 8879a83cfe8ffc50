package oracle

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// metadata is the part of an object's metadata that the oracle needs.
type metadata struct {
	UID         string            `json:"uid"`
	Created     time.Time         `json:"creationTimestamp"`
	Deleting    *time.Time        `json:"deletionTimestamp"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type storedEvent struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		IntegrationName string         `json:"integrationName"`
		Received        string         `json:"receivedTime"`
		Defaults        map[string]any `json:"defaults"`
		Alerts          string         `json:"alerts"`
		Encoding        string         `json:"encoding"`
		Report          alert          `json:"report"`
	} `json:"spec"`
}

// ofReport is in an alert that is a person's report. Only those have what is in onlyReports.
const ofReport = "report"

var onlyReports = []string{"by", "assignee", "silenceFor", "acknowledgeFor", ofReport}

// alerts decodes what the event says.
func (e *storedEvent) alerts() (alerts []alert, err error) {
	if said := e.Spec.Report; said != nil {
		said[ofReport] = true
		return []alert{said}, nil
	}
	var text io.Reader = strings.NewReader(e.Spec.Alerts)
	if e.Spec.Encoding == "gzip" {
		if text, err = gzip.NewReader(base64.NewDecoder(base64.StdEncoding, text)); err != nil {
			return nil, fmt.Errorf("decompressing alerts: %w", err)
		}
	}
	if err := json.NewDecoder(text).Decode(&alerts); err != nil {
		return nil, fmt.Errorf("decoding alerts: %w", err)
	}
	for _, alert := range alerts {
		for _, name := range onlyReports {
			delete(alert, name)
		}
	}
	return alerts, nil
}

// received is when the alerts count as received: a time that is far from their creation is not believed.
func (e *storedEvent) received() time.Time {
	received, err := time.Parse(time.RFC3339Nano, e.Spec.Received)
	created := e.Metadata.Created
	if err != nil || received.After(created.Add(time.Minute)) || received.Before(created.Add(-5*time.Minute)) {
		return created
	}
	return received
}

// heard is when the alerts end the quiet of their Incidents: at most a minute before they were stored.
func (e *storedEvent) heard() time.Time {
	received := e.received()
	if earliest := e.Metadata.Created.Add(-time.Minute); received.Before(earliest) {
		return earliest
	}
	return received
}

type alert map[string]any

func (a alert) text(name string) string {
	text, _ := a[name].(string)
	return text
}

// seq is the Seq of the Sent that the alert was.
func (a alert) seq() string {
	labels, _ := a["labels"].(map[string]any)
	seq, _ := labels[SeqLabel].(string)
	return seq
}

// by is the user whose report the alert is.
func (a alert) by() string { return strings.TrimSpace(a.text("by")) }

func (a alert) incidentName(integration string) string {
	if name := a.text("incidentName"); name != "" {
		return name
	}
	return v1alpha1.IncidentName(integration, a.text("dedupKey"))
}

// opens says whether the alert of this integration opens an Incident of the name.
func (a alert) opens(integration, name string) bool {
	key := a.text("dedupKey")
	return a.text("status") == firing && integration != "" && key != "" && v1alpha1.IncidentName(integration, key) == name
}

type storedIncident struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		IntegrationName string `json:"integrationName"`
		DedupKey        string `json:"dedupKey"`
	} `json:"spec"`
	Status storedStatus `json:"status"`
}

type storedStatus struct {
	State      string         `json:"state"`
	Alert      map[string]any `json:"alert"`
	AlertCount int64          `json:"alertCount"`
	Opened     time.Time      `json:"openedTime"`
	Resolved   time.Time      `json:"resolvedTime"`
	LastAlert  time.Time      `json:"lastAlertTime"`
	Episode    struct {
		Number     int64     `json:"number"`
		Start      time.Time `json:"startTime"`
		LastStart  time.Time `json:"lastStartTime"`
		AlertCount int64     `json:"alertCount"`
		Expired    int64     `json:"expiredAcknowledgements"`
	} `json:"episode"`
	Acknowledgement struct {
		Expires time.Time `json:"expirationTime"`
	} `json:"acknowledgement"`
	Assignee struct {
		Name string `json:"name"`
	} `json:"assignee"`
	Timeline []struct {
		Type string `json:"type"`
	} `json:"timeline"`
	Conditions []metav1.Condition `json:"conditions"`
	Ledger     struct {
		Digest string `json:"digest"`
		Events []struct {
			UID  string `json:"uid"`
			Name string `json:"name"`
		} `json:"events"`
	} `json:"ledger"`
}

// endedQuiet says whether the Incident was resolved because no alert came.
func (s *storedStatus) endedQuiet() bool {
	end := meta.FindStatusCondition(s.Conditions, "Resolved")
	return s.State == stateResolved && end != nil && (end.Reason == "AutoResolved" || end.Reason == "Expired")
}

// acknowledgementExpired says whether the last acknowledgement of an open Incident has ended by itself.
func (s *storedStatus) acknowledgementExpired() bool {
	is := meta.FindStatusCondition(s.Conditions, "Acknowledged")
	return s.State == stateOpen && is != nil && is.Status == metav1.ConditionFalse && is.Reason == "Expired"
}

func (s *storedStatus) listed() map[string]bool {
	uids := make(map[string]bool, len(s.Ledger.Events))
	for _, entry := range s.Ledger.Events {
		uids[entry.UID] = true
	}
	return uids
}

type storedIntegration struct {
	appeared time.Time
	Spec     struct {
		LateFiringWindow            *metav1.Duration `json:"lateFiringWindow"`
		AutoResolveAfter            metav1.Duration  `json:"autoResolveAfter"`
		AcknowledgementExpiresAfter metav1.Duration  `json:"acknowledgementExpiresAfter"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}
