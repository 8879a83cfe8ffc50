// Package clients has the libraries that tools use for PagerDuty, Opsgenie and CloudEvents send to a real manager.
package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/PagerDuty/go-pagerduty"
	cloudevents "github.com/cloudevents/sdk-go/v2"
	ceclient "github.com/cloudevents/sdk-go/v2/client"
	ceprotocol "github.com/cloudevents/sdk-go/v2/protocol"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	. "github.com/onsi/gomega"
	"github.com/opsgenie/opsgenie-go-sdk-v2/alert"
	ogclient "github.com/opsgenie/opsgenie-go-sdk-v2/client"
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// timeout is for everything that a busy machine may take long for.
const timeout = time.Minute

const wrongToken = "a-token-that-nobody-has"

func TestClients(t *testing.T) {
	g := NewWithT(t)
	cluster, err := testenv.StartCluster(t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(cluster.Stop)
	manager := testenv.TestManager(t, testenv.ManagerOptions{
		Kubeconfig: cluster.Kubeconfig, Log: os.Stderr, Args: []string{"--shutdown-delay=0s"},
	})
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s *site)
	}{
		{"go-pagerduty", testPagerDuty},
		{"opsgenie-go-sdk-v2", testOpsgenie},
		{"cloudevents-sdk-go", testCloudEvents},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			token, err := cluster.Integrate(t.Context(), test.name, "tool", v1alpha1.WebhookIntegrationSpec{})
			g.Expect(err).NotTo(HaveOccurred())
			s := &site{cluster: cluster, namespace: test.name, url: manager.WebhookURL, token: token}
			g.Eventually(func() (int, error) {
				return s.get(t.Context(), s.url+s.token+"/-/ready")
			}, timeout).Should(Equal(http.StatusOK))
			test.run(t, s)
		})
	}
}

// site is an integration and the way to it.
type site struct {
	cluster   *testenv.Cluster
	namespace string
	url       string // the address of the endpoint, with a slash at its end
	token     string
}

func (s *site) get(ctx context.Context, address string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// incidents are those of the site, by their dedup keys.
func (s *site) incidents(g Gomega) map[string]*v1alpha1.Incident {
	var list v1alpha1.IncidentList
	g.Expect(s.cluster.Client.List(context.Background(), &list, client.InNamespace(s.namespace))).To(Succeed())
	found := map[string]*v1alpha1.Incident{}
	for i := range list.Items {
		found[list.Items[i].Spec.DedupKey] = &list.Items[i]
	}
	return found
}

// settles waits until the only Incident has the key and is as it has to be.
func (s *site) settles(g *WithT, key string, check func(g Gomega, status *v1alpha1.IncidentStatus)) *v1alpha1.Incident {
	var incident *v1alpha1.Incident
	g.Eventually(func(g Gomega) {
		incidents := s.incidents(g)
		g.Expect(incidents).To(HaveLen(1))
		incident = incidents[key]
		g.Expect(incident).NotTo(BeNil())
		check(g, &incident.Status)
	}, timeout).Should(Succeed())
	return incident
}

func isAcknowledged(status *v1alpha1.IncidentStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionAcknowledged)
}

func testPagerDuty(t *testing.T, s *site) {
	t.Helper()
	g := NewWithT(t)
	tool := pagerduty.NewClient("", pagerduty.WithV2EventsAPIEndpoint(s.url+s.token))
	send := func(action string) {
		answer, err := tool.ManageEventWithContext(t.Context(), &pagerduty.V2Event{
			RoutingKey: "unused", Action: action, DedupKey: "srv01/mysql", ClientURL: "https://monitoring.example.com",
			Payload: &pagerduty.V2Payload{Summary: "DISK at 99%", Source: "srv01", Severity: "critical"},
		})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(answer).To(Equal(
			&pagerduty.V2EventResponse{Status: "success", Message: "Event processed", DedupKey: "srv01/mysql"}))
	}
	send("trigger")
	send("acknowledge")
	incident := s.settles(g, "srv01/mysql", func(g Gomega, status *v1alpha1.IncidentStatus) {
		g.Expect(status.State).To(Equal(v1alpha1.IncidentOpen))
		g.Expect(isAcknowledged(status)).To(BeTrue())
	})
	content := incident.Status.Alert
	g.Expect([]string{content.Title, string(content.Severity), content.Hostname, content.Link}).To(
		Equal([]string{"DISK at 99%", "critical", "srv01", "https://monitoring.example.com"}))
	send("resolve")
	s.settles(g, "srv01/mysql", func(g Gomega, status *v1alpha1.IncidentStatus) {
		g.Expect(status.State).To(Equal(v1alpha1.IncidentResolved))
	})

	_, err := pagerduty.NewClient("", pagerduty.WithV2EventsAPIEndpoint(s.url+wrongToken)).ManageEventWithContext(
		t.Context(), &pagerduty.V2Event{Action: "trigger"})
	g.Expect(err).To(MatchError(ContainSubstring("401")))
}

func testOpsgenie(t *testing.T, s *site) {
	t.Helper()
	g := NewWithT(t)
	address, err := url.Parse(s.url)
	g.Expect(err).NotTo(HaveOccurred())
	logger := logrus.New()
	logger.SetOutput(failOnWarnings{t})
	logger.SetLevel(logrus.WarnLevel)
	config := &ogclient.Config{ApiKey: s.token, OpsGenieAPIURL: ogclient.ApiUrl(address.Host), Logger: logger}
	tool, err := alert.NewClient(config)
	g.Expect(err).NotTo(HaveOccurred())
	const alias = "disk/db 1"
	accepted := func(result *alert.AsyncAlertResult, err error) *alert.AsyncAlertResult {
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.Result).To(Equal("Request will be processed"))
		g.Expect(result.RequestId).NotTo(BeEmpty())
		return result
	}
	created := accepted(tool.Create(t.Context(), &alert.CreateAlertRequest{
		Message: "Disk full", Alias: alias, Description: "/var is full", Priority: alert.P1, Entity: "db-1",
		Tags: []string{"env:prod"}, Details: map[string]string{"mount": "/var"},
	}))
	status, err := created.RetrieveStatus(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.IsSuccess).To(BeTrue())
	g.Expect(status.AlertID).To(Equal(v1alpha1.IncidentName("tool", alias)))

	accepted(tool.Acknowledge(t.Context(), &alert.AcknowledgeAlertRequest{
		IdentifierType: alert.ALIAS, IdentifierValue: alias, User: "maria", Note: "on it"}))
	accepted(tool.Unacknowledge(t.Context(), &alert.UnacknowledgeAlertRequest{IdentifierType: alert.ALIAS, IdentifierValue: alias}))
	accepted(tool.AddNote(t.Context(), &alert.AddNoteRequest{
		IdentifierType: alert.ALIAS, IdentifierValue: alias, User: "maria", Note: "a disk is ordered"}))
	accepted(tool.UpdateMessage(t.Context(), &alert.UpdateMessageRequest{
		IdentifierType: alert.ALIAS, IdentifierValue: alias, Message: "Disk very full"}))
	accepted(tool.UpdateDescription(t.Context(), &alert.UpdateDescriptionRequest{
		IdentifierType: alert.ALIAS, IdentifierValue: alias, Description: "no space"}))
	accepted(tool.UpdatePriority(t.Context(), &alert.UpdatePriorityRequest{
		IdentifierType: alert.ALIAS, IdentifierValue: alias, Priority: alert.P3}))
	accepted(tool.AddTags(t.Context(), &alert.AddTagsRequest{
		IdentifierType: alert.ALIAS, IdentifierValue: alias, Tags: []string{"team:storage"}}))
	accepted(tool.AddDetails(t.Context(), &alert.AddDetailsRequest{
		IdentifierType: alert.ALIAS, IdentifierValue: alias, Details: map[string]string{"disk": "sda"}}))
	ineffective := func(result *alert.AsyncAlertResult, err error) {
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.Result).To(HavePrefix("Request has no effect: "))
		status, err := result.RetrieveStatus(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(status.IsSuccess).To(BeTrue())
	}
	ineffective(tool.RemoveTags(t.Context(), &alert.RemoveTagsRequest{IdentifierType: alert.ALIAS, IdentifierValue: alias, Tags: "env:prod"}))
	ineffective(tool.RemoveDetails(t.Context(), &alert.RemoveDetailsRequest{IdentifierType: alert.ALIAS, IdentifierValue: alias, Keys: "mount"}))
	ineffective(tool.Snooze(t.Context(), &alert.SnoozeAlertRequest{
		IdentifierType: alert.ALIAS, IdentifierValue: alias, EndTime: time.Now().Add(time.Hour)}))
	incident := s.settles(g, alias, func(g Gomega, status *v1alpha1.IncidentStatus) {
		g.Expect(status.State).To(Equal(v1alpha1.IncidentOpen))
		g.Expect(status.Alert.Labels).To(And(HaveKey("team"), HaveKey("disk")))
	})
	content := incident.Status.Alert
	g.Expect([]string{content.Title, content.Description, string(content.Severity), content.Hostname}).To(
		Equal([]string{"Disk very full", "no space", "warning", "db-1"}))
	g.Expect(content.Labels).To(HaveLen(4))
	g.Expect(content.Custom).To(And(HaveLen(1), HaveKey("tags")), "the SDK's own fields are not kept")
	g.Expect(isAcknowledged(&incident.Status)).To(BeFalse())
	g.Expect(incident.Status.AlertCount).To(BeEquivalentTo(3), "notes and updates are no alerts")
	entries := [][2]string{}
	for _, entry := range incident.Status.Timeline {
		entries = append(entries, [2]string{string(entry.Type), entry.Comment})
	}
	g.Expect(entries).To(Equal([][2]string{
		{"Opened"}, {"Acknowledged", "maria: on it"}, {"Unacknowledged"}, {"Noted", "maria: a disk is ordered"}, {"SeverityChanged"},
	}))

	accepted(tool.Close(t.Context(), &alert.CloseAlertRequest{IdentifierType: alert.ALERTID, IdentifierValue: status.AlertID, Note: "done"}))
	s.settles(g, alias, func(g Gomega, status *v1alpha1.IncidentStatus) {
		g.Expect(status.State).To(Equal(v1alpha1.IncidentResolved))
		g.Expect(status.Timeline[len(status.Timeline)-1].Comment).To(Equal("done"))
	})

	logger.SetOutput(os.Stderr)
	stranger, err := alert.NewClient(&ogclient.Config{ApiKey: wrongToken, OpsGenieAPIURL: ogclient.ApiUrl(address.Host), Logger: logger})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = stranger.Create(t.Context(), &alert.CreateAlertRequest{Message: "x"})
	var refused *ogclient.ApiError
	g.Expect(err).To(BeAssignableToTypeOf(refused))
	g.Expect(err).To(MatchError(And(ContainSubstring("401"), ContainSubstring("The token is not valid"))))
}

// failOnWarnings fails the test when the SDK finds an answer incomplete.
type failOnWarnings struct{ t *testing.T }

func (f failOnWarnings) Write(line []byte) (int, error) {
	if !strings.Contains(string(line), "RequestNotProcessed") { // until the alert is folded
		f.t.Errorf("the SDK warns: %s", line)
	}
	return len(line), nil
}

func testCloudEvents(t *testing.T, s *site) {
	t.Helper()
	g := NewWithT(t)
	newClient := func(token string) ceclient.Client {
		tool, err := cloudevents.NewClientHTTP(cehttp.WithTarget(s.url+token), cehttp.WithHeader("User-Agent", "test"))
		g.Expect(err).NotTo(HaveOccurred())
		return tool
	}
	event := func(id, subject, contentType string, data any) cloudevents.Event {
		e := cloudevents.NewEvent()
		e.SetID(id)
		e.SetSource("/storage/eu")
		e.SetType("com.example.disk.full")
		e.SetSubject(subject)
		e.SetExtension("region", "eu-1")
		g.Expect(e.SetData(contentType, data)).To(Succeed())
		return e
	}
	object := map[string]string{"description": "1.2 GiB left", "severity": "P1", "hostname": "db-1"}
	const json = cloudevents.ApplicationJSON
	tool := newClient(s.token)
	for _, send := range []struct {
		ctx   context.Context
		event cloudevents.Event
	}{
		{cloudevents.WithEncodingBinary(t.Context()), event("1", "binary über %", json, object)},
		{cloudevents.WithEncodingBinary(t.Context()), event("1", "binary über %", json, object)}, // a copy
		{cloudevents.WithEncodingStructured(t.Context()), event("2", "structured", json, object)},
		{cloudevents.WithEncodingStructured(t.Context()), event("3", "text", "text/plain", "no space left")},
		{cloudevents.WithEncodingStructured(t.Context()), event("4", "bytes", "application/octet-stream", []byte{0xff, 0xfe})},
		{cloudevents.WithEncodingBinary(t.Context()), event("5", "binary bytes", "application/octet-stream", []byte{0xff, 0xfe})},
	} {
		result := tool.Send(send.ctx, send.event)
		g.Expect(ceprotocol.IsACK(result)).To(BeTrue(), "%v: %v", send.event, result)
	}
	batch, err := cehttp.NewHTTPRequestFromEvents(t.Context(), s.url+s.token, []cloudevents.Event{
		event("6", "batched", json, object), event("7", "batched too", json, object)})
	g.Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(batch)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.Body.Close()).To(Succeed())
	g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))

	var incidents map[string]*v1alpha1.Incident
	g.Eventually(func(g Gomega) {
		incidents = s.incidents(g)
		g.Expect(incidents).To(HaveLen(7))
		for _, incident := range incidents {
			g.Expect(incident.Status.AlertCount).To(BeEquivalentTo(1), incident.Spec.DedupKey)
		}
	}, timeout).Should(Succeed())
	for subject, want := range map[string][]string{
		"binary über %": {"1.2 GiB left", "critical", "db-1"}, "structured": {"1.2 GiB left", "critical", "db-1"},
		"batched": {"1.2 GiB left", "critical", "db-1"}, "batched too": {"1.2 GiB left", "critical", "db-1"},
		"text":  {"no space left", "warning", ""},
		"bytes": {"com.example.disk.full: bytes", "warning", ""}, "binary bytes": {"com.example.disk.full: binary bytes", "warning", ""},
	} {
		incident := incidents[fmt.Sprintf(`["/storage/eu","com.example.disk.full",%q]`, subject)]
		g.Expect(incident).NotTo(BeNil(), subject)
		content := incident.Status.Alert
		g.Expect([]string{content.Title, string(content.Severity), content.Hostname}).To(Equal(want), subject)
		g.Expect(attributes(g, incident)).To(HaveKeyWithValue("region", "eu-1"))
	}

	result := newClient(wrongToken).Send(t.Context(), event("8", "x", json, object))
	g.Expect(ceprotocol.IsACK(result)).To(BeFalse())
	var answer *cehttp.Result
	g.Expect(ceprotocol.ResultAs(result, &answer)).To(BeTrue())
	g.Expect(answer.StatusCode).To(Equal(http.StatusUnauthorized))
	g.Expect(strings.Contains(result.Error(), s.token)).To(BeFalse())
}

// attributes are those of the event that the Incident keeps.
func attributes(g *WithT, incident *v1alpha1.Incident) map[string]any {
	kept := map[string]any{}
	g.Expect(json.Unmarshal(incident.Status.Alert.Custom["cloudevent"], &kept)).To(Succeed())
	return kept
}
