// Command plugindoc prints docs/kubectl-tocsin.md: the help of every command of the kubectl plugin.
package main

import (
	"fmt"
	"os"

	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/cli"
)

func main() {
	if err := cli.WriteReference(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "plugindoc:", err)
		os.Exit(1)
	}
}
