// Command manager is Tocsin's operator: it accepts alerts over HTTP, stores them as AlertEvents and folds them into
// Incidents.
//
// Every replica serves webhooks; the leader, which holds the lease, folds.
package main

import (
	"os"

	"github.com/tocsin-dev/tocsin/internal/app"
)

func main() {
	os.Exit(app.Execute(os.Args[1:], os.Stdout, os.Stderr))
}
