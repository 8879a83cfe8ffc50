package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// probeName is the name of the AlertEvent that is never stored.
const probeName = "tocsin-probe"

// prober asks the API server to create an AlertEvent, as a dry run, which takes all that ingest takes but the last step
// into etcd. Failures of that step show as missed alerts.
type prober struct {
	client *http.Client
	url    string
	body   []byte
}

// AddIngestHealth adds to the manager the IngestHealth that the controllers and the webhook server share. It begins once the
// caches are filled, on every replica.
func AddIngestHealth(mgr ctrl.Manager, namespaces []string, clock Clock) (*IngestHealth, error) {
	h, err := newProbing(mgr.GetConfig(), namespaces, clock)
	if err != nil {
		return nil, fmt.Errorf("setting up the probe of the API server: %w", err)
	}
	if err := mgr.Add(h); err != nil {
		return nil, fmt.Errorf("adding the probe of the API server: %w", err)
	}
	return h, nil
}

// newProbing makes one that is still to be started.
func newProbing(config *rest.Config, namespaces []string, clock Clock) (*IngestHealth, error) {
	config = rest.CopyConfig(config)
	config.Timeout = probeTimeout
	if config.Dial == nil {
		// A connection of its own, which waits behind no other.
		config.Dial = (&net.Dialer{Timeout: probeTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	config.GroupVersion, config.APIPath = &v1alpha1.GroupVersion, "/apis"
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of the probe: %w", err)
	}
	namespace := metav1.NamespaceDefault
	if len(namespaces) > 0 && namespaces[0] != "" {
		namespace = namespaces[0]
	}
	event := &v1alpha1.AlertEvent{}
	event.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AlertEvent"))
	event.Name, event.Namespace = probeName, namespace
	event.Spec.Alerts = []v1alpha1.Alert{{IncidentName: probeName, Status: v1alpha1.AlertResolved}}
	body, err := json.Marshal(event)
	if err != nil {
		return nil, fmt.Errorf("encoding the probe: %w", err)
	}
	request := client.Post().Namespace(namespace).Resource("alertevents").Param("dryRun", metav1.DryRunAll).Timeout(probeVerdict)
	h := NewIngestHealth(clock)
	h.prober = &prober{client: client.Client, url: request.URL().String(), body: body}
	return h, nil
}

// Start implements manager.Runnable: it probes until ctx ends.
func (h *IngestHealth) Start(ctx context.Context) error {
	wait.NonSlidingUntilWithContext(ctx, h.probe, probeInterval)
	return nil
}

// probe asks once, and notes an answer. Without an answer there is nothing to note: the gap tells.
func (h *IngestHealth) probe(ctx context.Context) {
	logger := log.FromContext(ctx).WithName("probe")
	sent := h.clock.Now()
	server, err := h.prober.ask(ctx)
	note := h.Answered
	if err != nil {
		logger.V(1).Info("The API server does not accept the probe", "reason", err.Error())
		note = h.tell
	}
	if server.IsZero() {
		return
	}
	ahead, wrong, changed := note(sent, h.clock.Now(), server)
	clockOffset.Set(ahead.Seconds())
	switch {
	case changed && wrong:
		logger.Error(nil, "The clock differs from the API server's; no quiet Incident is resolved, and none is deleted",
			"aheadSeconds", ahead.Seconds())
	case changed:
		logger.Info("The clock agrees with the API server's again")
	}
}

// ask returns the API server's time, zero if it told none. An error says that the API server could not store an alert now. It
// does not matter whether a policy or a quota of the namespace denies the object.
func (p *prober) ask(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(p.body))
	if err != nil {
		return time.Time{}, fmt.Errorf("making the request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
	response, err := p.client.Do(request)
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = response.Body.Close() }()
	server, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the API server's time: %w", err)
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, maxProbeAnswer)); err != nil {
		return server, fmt.Errorf("reading the answer: %w", err)
	}
	switch code := response.StatusCode; {
	case code >= http.StatusInternalServerError, code == http.StatusTooManyRequests, code == http.StatusUnauthorized:
		return server, fmt.Errorf("the API server answers %d", code)
	}
	return server, nil
}
