//go:build slow

package alertmanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// The steps of the guide's section "Try it".
var (
	curlStep    = regexp.MustCompile(`\$ curl -d '([^']+)'`)
	silenceStep = regexp.MustCompile(`\$ kubectl tocsin silence NAME --for (\S+)`)
)

// walkthrough follows docs/paging.md from an Alertmanager with the guide's routes to the receiver's last message. The pager is a
// receiver of its own. The only other change is a shorter group_interval.
func walkthrough(r *rig) {
	page, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "paging.md"))
	r.Must(err)
	block, steps, silences := configBlock.FindSubmatch(page), curlStep.FindAllSubmatch(page, -1), silenceStep.FindSubmatch(page)
	if block == nil || len(steps) != 2 || silences == nil {
		r.T.Fatalf("docs/paging.md has another form: %q, %q", steps, silences)
	}
	pager := startReceiver()
	defer pager.Close()
	route, _, _ := strings.Cut(regexp.MustCompile("(?m)^"+string(block[1])).ReplaceAllString(string(block[2]), ""), "receivers:\n")
	route = strings.ReplaceAll(route, "group_interval: 1m", "group_interval: "+groupInterval.String())
	address := r.Addresses(1)[0]
	alertmanager := r.Alertmanager("guide", *program, address, fmt.Sprintf(
		"%sreceivers:\n- name: chat\n- name: pager\n  webhook_configs: [{url: %q, send_resolved: true}]\n", route, pager.URL), "--cluster.listen-address=")
	r.Start(alertmanager)
	defer alertmanager.Kill()
	r.configure("- url: http://" + address + "\n")
	defer r.configure("")

	const key, severity = "test", "critical"
	about := subject{name(key), severity}
	hears := func(want ...string) {
		r.T.Helper()
		r.Await(testenv.WaitTimeout, func(context.Context) error {
			if got, _ := pager.statuses(about); !slices.Equal(got, want) {
				return fmt.Errorf("the pager heard %v, not %v", got, want)
			}
			return nil
		})
	}
	r.Post(2*time.Second, r.managers, r.token, string(steps[0][1]))
	hears(firing)
	length, err := time.ParseDuration(string(silences[1]))
	r.Must(err)
	r.act(key, v1alpha1.Report{Status: v1alpha1.AlertSilenced, SilenceFor: &metav1.Duration{Duration: length}, Comment: "testing the pager"})
	r.Await(testenv.WaitTimeout, func(context.Context) error { // each has a silence of its own
		list, err := testenv.Call(r.Context, http.MethodGet, "http://"+address+"/api/v2/silences", "")
		if err == nil && !strings.Contains(list, about.incident) {
			err = errors.New("the guide's Alertmanager has no silence")
		}
		return err
	})
	r.becomes(key, v1alpha1.ConditionSilenced, v1alpha1.ReasonSilenced)
	r.Post(2*time.Second, r.managers, r.token, string(steps[1][1]))
	hears(firing, resolved)
	r.becomes(key, v1alpha1.ConditionSilenced, v1alpha1.ReasonNotSilenced)
	r.tell(key, severity, firing) // the other Alertmanagers notify as well
	r.tell(key, severity, resolved)
	r.told()
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
