package payload_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

func TestNamesThatAreClose(t *testing.T) {
	for sentence, test := range map[string]struct {
		payload string
		read    map[string]any // the fields that are added
		told    map[string]string
	}{
		"letters at each other's place":  {`{"titel":"Disk full"}`, nil, map[string]string{"titel": "title?"}},
		"a long name with two mistakes":  {`{"severtiy":"critical","hozztname":"x"}`, nil, map[string]string{"severtiy": "severity?", "hozztname": "hostname?"}},
		"a word that is another one":     {`{"reason":"x","version":"1","tile":"a","label":"b","count":1,"date":"x","port":1}`, nil, map[string]string{"label": "labels?"}},
		"a level that is a severity":     {`{"level":"critical"}`, map[string]any{"severity": "critical"}, map[string]string{"level": "read as severity"}},
		"a level that is none":           {`{"level":"7"}`, nil, map[string]string{"level": "severity?"}},
		"a level beside a severity":      {`{"level":"critical","severity":"info"}`, nil, nil},
		"a state that is an end":         {`{"state":"OK"}`, map[string]any{"status": "OK"}, map[string]string{"state": "read as status"}},
		"a state that is none":           {`{"state":"alerting"}`, nil, map[string]string{"state": "status?"}},
		"a state beside a status":        {`{"state":"resolved","status":"firing"}`, nil, nil},
		"a key in other letters":         {`{"dedupKey":"k"}`, map[string]any{"dedup_key": "k"}, map[string]string{"dedupKey": "read as dedup_key"}},
		"a key in capitals":              {`{"Dedup_Key":"k"}`, map[string]any{"dedup_key": "k"}, map[string]string{"Dedup_Key": "read as dedup_key"}},
		"two keys that differ":           {`{"dedupKey":"k","Dedup-Key":"l"}`, nil, map[string]string{"dedupKey": "dedup_key?", "Dedup-Key": "dedup_key?"}},
		"two keys that are the same":     {`{"dedupKey":"k","Dedup-Key":"k"}`, map[string]any{"dedup_key": "k"}, map[string]string{"Dedup-Key": "read as dedup_key"}},
		"a key of another tool":          {`{"fingerprint":"k"}`, nil, map[string]string{"fingerprint": "dedup_key?"}},
		"a text without a title":         {`{"text":"Disk full"}`, map[string]any{"title": "Disk full"}, map[string]string{"text": "read as title"}},
		"a name and a summary":           {`{"name":"disk","summary":"Disk full"}`, map[string]any{"title": "Disk full"}, map[string]string{"summary": "read as title"}},
		"a name beside an alias":         {`{"name":"disk","subject":"Disk full"}`, nil, nil},
		"a name that is no text":         {`{"name":{"a":1},"level":null,"text":" "}`, nil, nil},
		"a time in other letters":        {`{"startsAt":"2024-01-15T10:30:00Z"}`, map[string]any{"starts_at": "2024-01-15T10:30:00Z"}, map[string]string{"startsAt": "read as starts_at"}},
		"labels in capitals":             {`{"Labels":{"a":"b"}}`, map[string]any{"labels": map[string]any{"a": "b"}}, map[string]string{"Labels": "read as labels"}},
		"tags":                           {`{"tags":{"a":"b"}}`, nil, map[string]string{"tags": "labels?"}},
		"a list of tags":                 {`{"tags":["a"]}`, nil, map[string]string{"tags": "labels?"}},
		"names as they should be":        {`{"title":"a","severity":"info","status":"firing","dedup_key":"k"}`, nil, nil},
		"a field that is given as blank": {`{"title":" ","summary":"Disk full"}`, map[string]any{"title": "Disk full"}, map[string]string{"summary": "read as title"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			object, _, err := payload.Parse([]byte(test.payload))
			g.Expect(err).NotTo(HaveOccurred())
			before, err := json.Marshal(object)
			g.Expect(err).NotTo(HaveOccurred())
			want := maps.Clone(object)
			maps.Copy(want, test.read)
			for range 10 { // whatever the order of the map
				read, named, warnings := payload.ReadNames(object)
				g.Expect(named).To(HaveLen(len(test.read)))
				g.Expect(read).To(Equal(want))
				g.Expect(warnings).To(HaveLen(len(test.told)), "%v", warnings)
				for _, warning := range warnings {
					g.Expect(warning.Detail).To(ContainSubstring(test.told[warning.Field]), warning.Field)
					g.Expect(test.told).To(HaveKey(warning.Field))
				}
			}
			after, err := json.Marshal(object)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(after).To(Equal(before), "the payload is not changed")
			alert, _, _ := payload.Read(want, received)
			for key := range test.told {
				g.Expect(alert.Custom).To(HaveKey(key), "nothing is lost")
			}
		})
	}
}

func TestAPayloadOfManyKeysIsReadAsItIs(t *testing.T) {
	g := NewWithT(t)
	object := map[string]any{"dedupKey": "k"}
	for range 64 {
		object[strings.Repeat("x", len(object)+1)] = "y"
	}
	read, named, warnings := payload.ReadNames(object)
	g.Expect(named).To(BeEmpty())
	g.Expect(read).To(Equal(object))
	g.Expect(warnings).To(BeEmpty())
}
