//go:build slow

package alertmanager

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// configBlock finds the configurations of Alertmanager in the guide, which may be indented.
var configBlock = regexp.MustCompile("(?ms)^( *)```yaml alertmanager\n(.*?)^ *```$")

// guide starts a real Alertmanager with each configuration in docs/paging.md, and checks where a critical alert of Tocsin goes.
func guide(r *rig) {
	page, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "paging.md"))
	r.Must(err)
	blocks := configBlock.FindAllStringSubmatch(string(page), -1)
	const least = 4
	if len(blocks) < least {
		r.T.Fatalf("docs/paging.md has %d configurations", len(blocks))
	}
	for n, block := range blocks {
		r.Run(fmt.Sprint("configuration ", n+1), func() {
			r.tryConfig(fmt.Sprint("guide-", n+1), regexp.MustCompile("(?m)^"+block[1]).ReplaceAllString(block[2], ""))
		})
	}
}

// tryConfig starts an Alertmanager with the configuration, and posts an alert to it as Tocsin does.
func (r *rig) tryConfig(name, config string) {
	address := r.Addresses(1)[0]
	r.Start(r.Alertmanager(name, *program, address, config, "--cluster.listen-address="))
	url := "http://" + address + "/api/v2/alerts"
	_, err := testenv.Call(r.Context, http.MethodPost, url, fmt.Sprintf(
		`[{"labels":{"alertname":"Test","namespace":"shop","severity":"critical","%s":"disk-x"}}]`, v1alpha1.ForwardedLabel))
	r.Must(err)
	answer, err := testenv.Call(r.Context, http.MethodGet, url, "")
	r.Must(err)
	var alerts []struct{ Receivers []struct{ Name string } }
	r.Must(json.Unmarshal([]byte(answer), &alerts))
	if len(alerts) != 1 || len(alerts[0].Receivers) != 1 || alerts[0].Receivers[0].Name != "pager" {
		r.T.Fatal("a critical alert does not go to the receiver pager alone: " + answer)
	}
}
