package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// alertmanagerConfig groups all alerts and notifies nobody: only the intake is measured.
const alertmanagerConfig = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"

// measureAlertmanager posts a load to a real Alertmanager and returns its accepted alerts a second; NaN without a binary. The
// Alertmanager is a new one, as it keeps alerts in memory.
func (c *cluster) measureAlertmanager(ctx context.Context, load loadgen.Load) (rate float64, err error) {
	if c.alertmanager == "" {
		return math.NaN(), nil
	}
	folder, err := os.MkdirTemp(c.folder, "alertmanager-")
	if err != nil {
		return 0, err
	}
	config := filepath.Join(folder, "config.yaml")
	if err := os.WriteFile(config, []byte(alertmanagerConfig), 0o600); err != nil {
		return 0, err
	}
	addresses, err := testenv.FreeAddresses(1)
	if err != nil {
		return 0, err
	}
	process := testenv.NewProcess(c.log, c.alertmanager, "--config.file="+config, "--storage.path="+folder,
		"--web.listen-address="+addresses[0], "--cluster.listen-address=", "--log.level=warn")
	base := "http://" + addresses[0]
	process.ReadyURL = base + "/-/ready"
	defer process.Kill()
	if err := testenv.StartReady(ctx, process); err != nil {
		return 0, err
	}
	load.URLs, load.Body, load.AcknowledgedCode = []string{base + "/api/v2/alerts"}, alertmanagerAlert, http.StatusOK
	load.Duration, load.Requests = time.Second, 0
	loadgen.Run(ctx, load) // the first requests are slower; they are not counted
	load.Duration = yardstickTime
	account := loadgen.Run(ctx, load)
	if len(account.Codes) != 1 || account.Acknowledged() == 0 {
		return 0, fmt.Errorf("Alertmanager answered %v", account.Codes) //nolint:staticcheck // a name
	}
	return account.Rate(), nil
}

// alertmanagerAlert is the content of loadgen.Payload as a request to Alertmanager. Equal keys are equal label sets, so
// that Alertmanager takes them for the same alert.
func alertmanagerAlert(n int, key string) []byte {
	return fmt.Appendf(nil, `[{"labels":{"alertname":"cpu","severity":"critical","dedup_key":%[2]q,"region":"eu-west-1",`+
		`"env":"production","service":"api","team":"blue"},"annotations":{"title":"High CPU usage on web-%[1]d",`+
		`"description":"CPU usage was over 90 %% for 5 minutes on web-%[1]d.example.com; the 5 minute load average is 17.25.",`+
		`"hostname":"web-%[1]d.example.com","runbook":"https://runbooks.example.com/cpu","summary":"CPU","cpu":"93.5",`+
		`"load5":"17.25","sequence":"%[1]d"},"generatorURL":"https://monitoring.example.com/alerts/%[1]d"}]`, n, key)
}
