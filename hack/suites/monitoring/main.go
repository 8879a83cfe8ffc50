// Command monitoring is "make test-monitoring". It tests the alerting rules with promtool, and has a real
// Prometheus scrape a manager under load, to see that every panel of the dashboard shows something and that every
// alert of the rules is what it should be. Both programs are in Debian's package prometheus. With --kube-state-metrics=PROGRAM
// it is "make test-kube-state-metrics", which tests config/kube-state-metrics instead.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// timeout bounds it all.
const timeout = 3 * time.Minute

func main() {
	kubeStateMetrics := flag.String("kube-state-metrics", "", "the program kube-state-metrics, to test it alone")
	flag.Parse()
	testenv.RunSuite("monitoring", timeout, nil, func(ctx context.Context, folder string) error {
		return run(ctx, folder, *kubeStateMetrics)
	})
}

func run(ctx context.Context, folder, kubeStateMetrics string) error {
	for _, program := range []string{"promtool", "prometheus"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("there is no %s on the PATH; on Debian and Ubuntu \"apt-get install prometheus\" brings it", program)
		}
	}
	if kubeStateMetrics != "" {
		return testKubeStateMetrics(ctx, folder, kubeStateMetrics)
	}
	if err := testRules(ctx, folder); err != nil {
		return err
	}
	return testDashboard(ctx, folder)
}

// testRules takes the rules out of the PrometheusRule, into the form that promtool reads, and runs their tests.
func testRules(ctx context.Context, folder string) error {
	source := filepath.Join(testenv.Root(), "config", "components", "prometheus")
	content, err := os.ReadFile(filepath.Join(source, "rules.yaml"))
	if err != nil {
		return err
	}
	var object struct {
		Spec map[string]any `json:"spec"`
	}
	if err := yaml.Unmarshal(content, &object); err != nil {
		return fmt.Errorf("reading the PrometheusRule: %w", err)
	}
	rules, err := yaml.Marshal(object.Spec)
	if err != nil {
		return err
	}
	tests, err := os.ReadFile(filepath.Join(source, "rules_test.yaml"))
	if err != nil {
		return err
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(folder, rulesFile), rules, 0o600),
		os.WriteFile(filepath.Join(folder, "rules_test.yaml"), tests, 0o600),
	)
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", "rules_test.yaml"}} {
		command := exec.CommandContext(ctx, "promtool", args...)
		command.Dir = folder
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		if err := command.Run(); err != nil {
			return fmt.Errorf("promtool %s %s: %w", args[0], args[1], err)
		}
	}
	return nil
}
