// Command kubectl-tocsin is the kubectl plugin: with it on the PATH, "kubectl tocsin" shows and handles
// Incidents, lets senders in and explains what becomes of a payload.
//
// Under the name kubectl_complete-tocsin it completes kubectl's command line, as kubectl expects of plugins.
package main

import (
	"os"

	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/cli"
)

func main() {
	os.Exit(cli.Main(os.Args, os.Stdin, os.Stdout, os.Stderr))
}
