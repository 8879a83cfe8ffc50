package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// configBlock finds the configurations of Alertmanager in the guide, which may be indented.
var configBlock = regexp.MustCompile("(?ms)^( *)```yaml alertmanager\n(.*?)^ *```$")

// guide starts a real Alertmanager with each configuration in docs/paging.md, and checks where a critical alert of Tocsin goes.
func guide(ctx context.Context, r *rig) error {
	page, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "paging.md"))
	if err != nil {
		return err
	}
	blocks := configBlock.FindAllStringSubmatch(string(page), -1)
	const least = 4
	if len(blocks) < least {
		return fmt.Errorf("docs/paging.md has %d configurations", len(blocks))
	}
	for n, block := range blocks {
		config := regexp.MustCompile("(?m)^"+block[1]).ReplaceAllString(block[2], "")
		if err := r.tryConfig(ctx, fmt.Sprint("guide-", n), config); err != nil {
			return fmt.Errorf("configuration %d of docs/paging.md: %w", n+1, err)
		}
	}
	return nil
}

// tryConfig starts an Alertmanager with the configuration, and posts an alert to it as Tocsin does.
func (r *rig) tryConfig(ctx context.Context, name, config string) error {
	free, err := testenv.FreeAddresses(1)
	if err != nil {
		return err
	}
	file := filepath.Join(r.folder, name+".yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(r.folder, name+".log"))
	if err != nil {
		return err
	}
	alertmanager := testenv.NewProcess(log, r.options.alertmanager, "--config.file="+file,
		"--storage.path="+filepath.Join(r.folder, name), "--web.listen-address="+free[0], "--cluster.listen-address=")
	if err := alertmanager.Start(); err != nil {
		return err
	}
	defer alertmanager.Kill()
	base := "http://" + free[0]
	const startTime = 10 * time.Second
	err = testenv.Await(ctx, startTime, func(ctx context.Context) error {
		_, err := testenv.Call(ctx, http.MethodGet, base+"/-/ready", "")
		return err
	})
	if err != nil {
		printed, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%w: %s", err, printed)
	}
	alert := fmt.Sprintf(`[{"labels":{"alertname":"Test","namespace":"shop","severity":"critical","%s":"disk-x"}}]`,
		v1alpha1.ForwardedLabel)
	if _, err := testenv.Call(ctx, http.MethodPost, base+"/api/v2/alerts", alert); err != nil {
		return err
	}
	answer, err := testenv.Call(ctx, http.MethodGet, base+"/api/v2/alerts", "")
	if err != nil {
		return err
	}
	var alerts []struct{ Receivers []struct{ Name string } }
	if err := json.NewDecoder(strings.NewReader(answer)).Decode(&alerts); err != nil {
		return err
	}
	if len(alerts) != 1 || len(alerts[0].Receivers) != 1 || alerts[0].Receivers[0].Name != "pager" {
		return errors.New("a critical alert does not go to the receiver pager alone: " + answer)
	}
	return nil
}
