package payload_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// The bounds in use are those of the generated definition of AlertEvent.
func TestTextsFillTheirBoundsInTheDefinition(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(testenv.Root(), "config/crd/bases/tocsin.dev_incidents.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	var definition map[string]any
	g.Expect(yaml.Unmarshal(content, &definition)).To(Succeed())
	version := definition["spec"].(map[string]any)["versions"].([]any)[0]
	properties := dig(version, "schema", "openAPIV3Schema", "properties")
	alert := dig(properties, "status", "properties", "alert", "properties")

	long := strings.Repeat("ö", 20_000)
	read, warnings := read(t, `{"title":"`+long+`","description":"`+long+`","type":"`+long+`","link":"`+long+
		`","hostname":"`+long+`","region":"`+long+`"}`)
	g.Expect(warnings).To(HaveLen(6))
	for field, text := range map[string]string{
		"title": read.Title, "description": read.Description, "type": read.Type, "link": read.Link,
		"hostname": read.Hostname, "region": read.Region,
	} {
		g.Expect([]rune(text)).To(HaveLen(int(dig(alert, field).(map[string]any)["maxLength"].(float64))), field)
	}
	g.Expect(dig(properties, "spec", "properties", "dedupKey").(map[string]any)["maxLength"]).To(BeEquivalentTo(1024))
}

// dig follows keys into decoded YAML.
func dig(value any, keys ...string) any {
	for _, key := range keys {
		value = value.(map[string]any)[key]
	}
	return value
}

func TestAnAlertTooLargeLosesItsLargestEntries(t *testing.T) {
	g := NewWithT(t)
	alert, warnings := read(t, `{"title":"T","labels":{"big":"`+strings.Repeat("<", 30_000)+`","small":1},
		"x":"`+strings.Repeat("x", 100_000)+`"}`)
	g.Expect(encode(t, alert.Labels)).To(MatchJSON(`{"small":"1"}`))
	g.Expect(alert.Custom).To(HaveKey("x"))
	g.Expect(alertcontent.Size(&alert.AlertContent)).To(BeNumerically("<=", alertcontent.MaxBytes))
	g.Expect(warnings).To(HaveLen(1))
	g.Expect(warnings[0].Detail).To(HaveSuffix(`dropped: "labels.big"`))
}

func TestABagThatLosesAllIsAbsent(t *testing.T) {
	g := NewWithT(t)
	alert, _ := read(t, `{"labels":{"big":"`+strings.Repeat("<", 60_000)+`"}}`)
	g.Expect(encode(t, alert)).To(MatchJSON(`{"status":"firing"}`))
}

func TestWarningsAreFewAndShort(t *testing.T) {
	g := NewWithT(t)
	_, warnings := read(t, accepted["ten thousand entries"])
	g.Expect(warnings).To(HaveLen(32))
	g.Expect(warnings[31].Detail).To(MatchRegexp(`^\d+ more warnings are left out$`))

	long := strings.Repeat("k\\u0000", 5_000)
	_, warnings = read(t, `{"severity":"`+long+`","`+long+`":1e400,"starts_at":"`+long+`"}`)
	g.Expect(warnings).To(HaveLen(3))
	for _, warning := range warnings {
		g.Expect(len(fmt.Sprint(warning))).To(BeNumerically("<", 500))
		g.Expect(plaintext.SanitizeLine(warning.Field + warning.Detail)).To(Equal(warning.Field + warning.Detail))
	}
}

// TestAnAlertWithVeryManyKeysKeepsThemAsText has more keys than the bags of an alert may have.
func TestAnAlertWithVeryManyKeysKeepsThemAsText(t *testing.T) {
	g := NewWithT(t)
	var keys strings.Builder
	for i := range 19_000 {
		fmt.Fprintf(&keys, `"%04x":0,`, i)
	}
	alert, warnings := read(t, `{`+keys.String()+`"labels":{}}`)
	g.Expect(alert.Custom).To(HaveLen(1))
	var text string
	g.Expect(json.Unmarshal(alert.Custom[alertcontent.JSONKey], &text)).To(Succeed())
	kept := map[string]int{}
	g.Expect(json.Unmarshal([]byte(text), &kept)).To(Succeed())
	g.Expect(len(kept)).To(BeNumerically(">", 10_000), "as many as the size allows")
	g.Expect(alertcontent.Size(&alert.AlertContent)).To(BeNumerically("<=", alertcontent.MaxBytes))
	g.Expect(warnings).To(HaveLen(2))
	g.Expect(warnings[0].Field).To(Equal("custom"))
	g.Expect(warnings[0].Detail).To(HaveSuffix("kept as text in custom.json"))
	g.Expect(warnings[1].Detail).To(ContainSubstring("dropped: "))

	alert, warnings = read(t, `{"labels":{"team":"a"},"custom":{`+keys.String()[:300*len(`"0000":0,`)-1]+`}}`)
	g.Expect(encode(t, alert.Labels)).To(MatchJSON(`{"team":"a"}`))
	g.Expect(json.Unmarshal(alert.Custom[alertcontent.JSONKey], &text)).To(Succeed())
	kept = map[string]int{}
	g.Expect(json.Unmarshal([]byte(text), &kept)).To(Succeed())
	g.Expect(kept).To(HaveLen(300))
	g.Expect(warnings).To(HaveLen(1), "nothing is dropped")
}
