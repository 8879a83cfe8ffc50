// Command kubectl-tocsin is the kubectl plugin. With it on the PATH, "kubectl tocsin" shows and manages Incidents,
// authorizes senders and explains how payloads are processed.
//
// Under the name kubectl_complete-tocsin, it completes kubectl's command line.
package main

import (
	"os"

	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/cli"
)

func main() {
	os.Exit(cli.Main(os.Args, os.Stdin, os.Stdout, os.Stderr))
}
