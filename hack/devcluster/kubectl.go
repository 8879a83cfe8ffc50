package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/version"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	// maxSkew is how many minor versions kubectl may be away from the API server, as Kubernetes has it.
	maxSkew = 1

	// askTimeout bounds the wait for the versions of kubectl and the API server.
	askTimeout = 5 * time.Second

	// endTimeout is how long a build has to end.
	endTimeout = 5 * time.Second
)

// kubectl is where there is a kubectl that fits the cluster.
type kubectl int

const (
	kubectlLacks kubectl = iota
	kubectlOfPath
	kubectlBesideServer // with kube-apiserver
)

// findKubectl finds a kubectl that fits the cluster.
func findKubectl(ctx context.Context, kubeconfig string) kubectl {
	switch {
	case fits(ctx, "kubectl", kubeconfig):
		return kubectlOfPath
	case fits(ctx, filepath.Join(testenv.Assets(), "kubectl"), kubeconfig):
		return kubectlBesideServer
	default:
		return kubectlLacks
	}
}

// fits says whether a kubectl can be run, and supports the API server.
func fits(ctx context.Context, path, kubeconfig string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	ask := exec.CommandContext(ctx, path, "version", "--output=json")
	ask.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	var answer struct{ ClientVersion, ServerVersion version.Info }
	output, err := ask.Output()
	if err != nil || json.Unmarshal(output, &answer) != nil {
		return false
	}
	skew := minor(&answer.ClientVersion) - minor(&answer.ServerVersion)
	return -maxSkew <= skew && skew <= maxSkew
}

// minor returns the number of a minor version, which some builds end with a plus sign.
func minor(of *version.Info) int {
	number, _ := strconv.Atoi(strings.TrimRight(of.Minor, "+")) // a version without one fits none
	return number
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
