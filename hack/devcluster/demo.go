package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"text/template"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/live"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// The alerts of the demonstration.
const (
	demoKey = "disk-full-db-1"

	fireBody = `{"title":"Disk 97 % full","severity":"critical","hostname":"db-1",` +
		`"labels":{"team":"storage"},"dedup_key":"` + demoKey + `"}`
	resolveBody = `{"status":"resolved","dedup_key":"` + demoKey + `"}`
)

// endTimeout is how long a build of kubectl has to end.
const endTimeout = 5 * time.Second

// demonstration is what there is to try.
type demonstration struct {
	address, token string
	archive        string // its URL; empty without one
	cluster        *cluster
	programs       []*program // the manager comes first

	besideServer bool // the kubectl to use is the one beside kube-apiserver: there is none on the PATH
	lacksKubectl bool // there is none there either
}

// findKubectl finds out which kubectl there is.
func (d *demonstration) findKubectl() {
	_, onPath := exec.LookPath("kubectl")
	_, beside := os.Stat(filepath.Join(testenv.Assets(), "kubectl"))
	d.besideServer, d.lacksKubectl = onPath != nil, onPath != nil && beside != nil
}

// instructions are lines to copy, below comments that say what they do.
var instructions = template.Must(template.New("").Parse(
	`# In another terminal, for kubectl and "kubectl tocsin" (which "make install-plugin" builds):
export KUBECONFIG={{.Kubeconfig}}
export TOCSIN_ENDPOINT=http://{{.Address}}
{{with .Path}}export PATH="{{.}}:$PATH"
{{end}}{{with .Archive}}export TOCSIN_ARCHIVE={{.}}
{{end}}# List the incidents{{if .Building}} (kubectl is being built, a line below will say that it is there){{end}}:
kubectl get incidents{{with .Namespace}} -n {{.}}{{end}}
# Fire an alert:
curl -d '{{.Fire}}' {{.URL}}
# Resolve it:
curl -d '{{.Resolve}}' {{.URL}}

What happens to the incidents of the demo:

`))

// print prints the instructions.
func (d *demonstration) print(out io.Writer) error {
	values := map[string]any{
		"Kubeconfig": d.cluster.kubeconfig, "Address": d.address, "Archive": d.archive, "Building": d.lacksKubectl,
		"Fire": fireBody, "Resolve": resolveBody, "URL": "http://" + d.address + "/api/v1/events/webhook/" + d.token,
	}
	if d.besideServer {
		values["Path"] = testenv.Assets()
	}
	if d.cluster.theirs {
		values["Namespace"] = demoNamespace // its kubeconfig is not ours to set one in
	}
	return instructions.Execute(out, values)
}

// accompany keeps the programs running, tells of the demo's Incidents, and has a command get kubectl if there is none, until ctx
// ends or a program ends by itself.
func (d *demonstration) accompany(ctx context.Context, command string, out io.Writer) error {
	tasks, ctx := errgroup.WithContext(ctx)
	for _, p := range d.programs {
		tasks.Go(func() error { return p.keepRunning(ctx, out) })
	}
	tasks.Go(func() error {
		d.tell(ctx, out)
		return nil
	})
	if d.lacksKubectl {
		tasks.Go(func() error {
			getKubectl(ctx, command, out)
			return nil
		})
	}
	return tasks.Wait()
}

// tell prints a line when an Incident of the demo opens, changes its severity or resolves, until ctx ends.
func (d *demonstration) tell(ctx context.Context, out io.Writer) {
	told := map[string]string{}
	live.Follow(d.cluster.client, demoNamespace, live.Prune, func(change live.Change) {
		status := &change.Incident.Status
		line := fmt.Sprintf("%-8s  %-8s  %s", status.State, status.Alert.Severity, plaintext.SanitizeLine(status.Alert.Title))
		if name := change.Incident.Name; !change.Deleted && status.State != "" && told[name] != line {
			told[name] = line
			_, _ = fmt.Fprintln(out, time.Now().Format(time.TimeOnly), line)
		}
	}).Run(ctx)
}

// getKubectl has a command put kubectl beside kube-apiserver, and says how that went.
func getKubectl(ctx context.Context, command string, out io.Writer) {
	build := exec.CommandContext(ctx, "nice", command)
	build.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it ends with all that it has started
	build.Cancel = func() error { return syscall.Kill(-build.Process.Pid, syscall.SIGTERM) }
	build.WaitDelay = endTimeout
	switch output, err := build.CombinedOutput(); {
	case ctx.Err() != nil:
	case err != nil:
		_, _ = fmt.Fprintf(out, "There is no kubectl: \"make control-plane\" failed (%v), and ended with:\n%s\n",
			err, lastLines(string(output)))
	default:
		_, _ = fmt.Fprintf(out, "kubectl is there: %s\n", filepath.Join(testenv.Assets(), "kubectl"))
	}
}
