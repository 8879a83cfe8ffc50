package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
)

// call sends a request straight to a transport.
func call(b *testing.B, transport http.RoundTripper, method, path string, body []byte) *http.Response {
	b.Helper()
	request, err := http.NewRequestWithContext(context.Background(), method, "http://apiserver"+path,
		strings.NewReader(string(body)))
	if err != nil {
		b.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		b.Fatal(err)
	}
	if response.StatusCode/100 != 2 {
		text, _ := io.ReadAll(response.Body)
		b.Fatal(response.Status, string(text))
	}
	return response
}

// BenchmarkQueue measures the life of an AlertEvent without its clients: a create, two watches that see it, and a delete that
// they see.
func BenchmarkQueue(b *testing.B) {
	server := newServer(b, apiserver.Options{})
	transport := server.Transport("bench", nil)
	const path = "/apis/tocsin.dev/v1alpha1/namespaces/default/alertevents"
	var streams []*json.Decoder
	for range 2 {
		response := call(b, transport, http.MethodGet, path+"?watch=true&resourceVersion=0", nil)
		defer func() { _ = response.Body.Close() }()
		streams = append(streams, json.NewDecoder(response.Body))
	}
	var event json.RawMessage
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprint("event-", i)
		body, _ := json.Marshal(alertEvent(name))
		call(b, transport, http.MethodPost, path, body)
		call(b, transport, http.MethodDelete, path+"/"+name, nil)
		for _, stream := range streams {
			for range 2 {
				if err := stream.Decode(&event); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
}

// BenchmarkStatus measures updates of the status of an Incident of usual size.
func BenchmarkStatus(b *testing.B) {
	server := newServer(b, apiserver.Options{})
	transport := server.Transport("bench", nil)
	const path = "/apis/tocsin.dev/v1alpha1/namespaces/default/incidents"
	body, _ := json.Marshal(incident("a"))
	response := call(b, transport, http.MethodPost, path, body)
	for i := 0; b.Loop(); i++ {
		var o object
		if err := json.NewDecoder(response.Body).Decode(&o); err != nil {
			b.Fatal(err)
		}
		body, _ := json.Marshal(with(o, object{"state": "Open", "alertCount": i, "ledger": object{"events": entries(30)}}, "status"))
		response = call(b, transport, http.MethodPut, path+"/a/status", body)
	}
}

// BenchmarkList measures lists of the metadata of 300 AlertEvents.
func BenchmarkList(b *testing.B) {
	server := newServer(b, apiserver.Options{})
	transport := server.Transport("bench", nil)
	const path = "/apis/tocsin.dev/v1alpha1/namespaces/default/alertevents"
	for i := range 300 {
		body, _ := json.Marshal(alertEvent(fmt.Sprint("event-", i)))
		call(b, transport, http.MethodPost, path, body)
	}
	for b.Loop() {
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://apiserver"+path, nil)
		if err != nil {
			b.Fatal(err)
		}
		request.Header.Set("Accept", asMetadataList)
		response, err := transport.RoundTrip(request)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
	}
}
