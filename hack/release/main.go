// Command release builds the artifacts of a release, checks them and publishes them.
//
//	release build [flags]        builds all artifacts into a folder
//	release sbom [flags] BINARY  prints the bill of materials of a Go binary
//	release verify FOLDER        checks the artifacts as a user would
//	release push [flags] FOLDER  pushes the images, the bundle and the chart to a registry, and prints their references
//	release registry             serves an empty registry on this machine, and prints its address
//
// The Makefile calls it; RELEASE.md describes the process. GoReleaser could replace build.go and archive.go, but not the image
// and the checks, and its newest releases do not build with the project's version of Go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

// errUsage is the error of a command line that cannot be read.
var errUsage = errors.New("usage: release build|sbom|verify|push|registry [flags] [arguments]")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}
	commands := map[string]func(context.Context, []string, io.Writer) error{
		"build":    buildCommand,
		"sbom":     sbomCommand,
		"verify":   verifyCommand,
		"push":     pushCommand,
		"registry": registryCommand,
	}
	command, known := commands[args[0]]
	if !known {
		return errUsage
	}
	return command(ctx, args[1:], stdout)
}

// parse reads the flags, and returns the arguments if there are as many as wanted.
func parse(flags *flag.FlagSet, args []string, wanted int) ([]string, error) {
	if err := flags.Parse(args); err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() != wanted {
		return nil, fmt.Errorf("%w: %s takes %d arguments", errUsage, flags.Name(), wanted)
	}
	return flags.Args(), nil
}
