package protocol

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

func TestFind(t *testing.T) {
	for path, want := range map[string]struct{ path, identifier, allowed string }{
		"POST ":                           {"", "", ""},
		"GET ":                            {"", "", "POST OPTIONS"},
		"OPTIONS ":                        {"", "", ""},
		"POST v2/enqueue":                 {"/v2/enqueue", "", ""},
		"POST v2":                         {"-", "", ""},
		"POST v2/enqueue/more":            {"-", "", ""},
		"POST v2/alerts":                  {"/v2/alerts", "", ""},
		"POST v2/alerts/a/close":          {"/v2/alerts/{identifier}/close", "a", ""},
		"POST v2/alerts/close":            {"-", "", ""},
		"POST v2/alerts/close/close":      {"/v2/alerts/{identifier}/close", "close", ""},
		"POST v2/alerts/a/b/close":        {"/v2/alerts/{identifier}/close", "a/b", ""},
		"POST v2/alerts/a%2Fb%20c/close":  {"/v2/alerts/{identifier}/close", "a/b c", ""},
		"POST v2/alerts/%zz/close":        {"/v2/alerts/{identifier}/close", "%zz", ""},
		"PUT v2/alerts/a/tags":            {"/v2/alerts/{identifier}/tags", "a", ""},
		"DELETE v2/alerts/a/tags":         {"/v2/alerts/{identifier}/tags", "a", ""},
		"PATCH v2/alerts/a/tags":          {"/v2/alerts/{identifier}/tags", "a", "POST PUT DELETE"},
		"GET v2/alerts/requests/r":        {"/v2/alerts/requests/{identifier}", "r", ""},
		"POST v2/alerts/requests/close":   {"/v2/alerts/{identifier}/close", "requests", ""},
		"GET v2/alerts/requests/close":    {"/v2/alerts/requests/{identifier}", "close", ""},
		"DELETE v2/alerts/requests/close": {"/v2/alerts/requests/{identifier}", "close", "POST GET"},
	} {
		t.Run(path, func(t *testing.T) {
			g := NewWithT(t)
			method, rest, _ := strings.Cut(path, " ")
			operation, identifier, allowed := NewRoutes(Operations()).Find(method, rest)
			is := "-"
			if operation != nil {
				is = operation.Path
			}
			g.Expect([]string{is, identifier, strings.Join(allowed, " ")}).To(Equal([]string{want.path, want.identifier, want.allowed}))
		})
	}
}

func TestOperationsNamePresetsThatExist(t *testing.T) {
	g := NewWithT(t)
	for _, operation := range Operations() {
		_, err := mapping.Compile(operation.Preset, nil)
		g.Expect(err).NotTo(HaveOccurred(), operation.Path)
		g.Expect((operation.Read == nil) != (operation.Answer == nil)).To(BeTrue(), operation.Path)
	}
}

func TestEventsOfABatchDoNotKeepTheHeadersOfTheRequest(t *testing.T) {
	g := NewWithT(t)
	header := http.Header{"Content-Type": {mediaTypeBatch}}
	for i := range 3_700 {
		header.Set(strconv.FormatInt(int64(i), 36), "")
	}
	event := `{"specversion": "1.0", "id": "1", "source": "s", "type": "t"},`
	body := "[" + strings.TrimSuffix(strings.Repeat(event, mapping.MaxAlerts), ",") + "]"
	content, err := readEvents(&Request{Header: header, Body: []byte(body), Parse: payload.ParseAny})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(content.Payloads).To(HaveLen(mapping.MaxAlerts))
	for _, p := range content.Payloads {
		g.Expect(p.Header).To(HaveLen(len([]string{"specversion", "id", "source", "type"})))
	}
}

// FuzzRead reads any body by every operation: what it gives can be read as alerts, or is an error.
func FuzzRead(f *testing.F) {
	for _, body := range []string{`{}`, `[]`, `null`, `{"note": {}, "user": 1}`, `{"specversion": "1.0", "id": "1", "source": "s", "type": "t"}`,
		`[{"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data_base64": "e30=", "time": 7}, 1]`, "text", "\xff"} {
		for kind := range contentTypes {
			f.Add([]byte(body), kind, "tool-abcdefghijklmnopqrstuvwxyz")
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, kind int, identifier string) {
		header := http.Header{"Content-Type": {contentTypes[max(kind, -kind, 0)%len(contentTypes)]}}
		if kind%2 == 0 {
			for _, name := range []string{"Specversion", "Id", "Source", "Type", "Subject"} {
				header.Set("Ce-"+name, "1.0")
			}
		}
		for _, operation := range Operations() {
			r := &Request{Header: header, Parameters: url.Values{}, Body: body, Identifier: identifier, Integration: "tool",
				Parse: payload.ParseAny, HasIncident: func(string) bool { return true }}
			if operation.IsQuery() {
				operation.Answer(r)
			}
			if operation.Read == nil {
				continue
			}
			content, err := operation.Read(r)
			if err != nil {
				continue
			}
			for _, p := range content.Payloads {
				_, err := (&mapping.Program{}).Alerts(p.Value, header, time.Unix(0, 0))
				if _, isAny := p.Value.(map[string]any); isAny && err != nil {
					t.Errorf("%s: %v", operation.Path, err)
				}
			}
		}
	})
}

var contentTypes = []string{"application/json", mediaTypeEvent, mediaTypeBatch, "text/plain", ""}
