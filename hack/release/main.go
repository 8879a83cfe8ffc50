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
	"log"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// errUsage is the error of a command line that cannot be read.
var errUsage = errors.New("usage: release build|sbom|verify|push|registry [flags] [arguments]")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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

// releaser builds, verifies or pushes a release.
type releaser struct {
	root       string // of the repository
	folder     string // of the artifacts
	version    string // with the v
	commit     string
	date       time.Time // of the commit; everything is dated so
	repository string    // that publishes
	registry   string    // another one than the repository's
	locations  locations // that follow from both
	platforms  []platform
	ldflags    string
	scratch    string // a folder that is removed at the end
	stdout     io.Writer
}

// flags returns the flags of a command. All commands have the same ones.
func (r *releaser) flags(command string) *flag.FlagSet {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.StringVar(&r.root, "root", ".", "The repository's folder.")
	flags.StringVar(&r.folder, "out", "bin/release", "The folder of the artifacts to build. It is emptied.")
	flags.StringVar(&r.version, "version", "", "The version, such as v0.1.0.")
	flags.StringVar(&r.commit, "commit", "", "The commit's hash.")
	flags.TextVar(&r.date, "date", time.Time{}, "The commit's date in RFC 3339.")
	flags.StringVar(&r.repository, "repository", "", "The repository that publishes, such as github.com/OWNER/NAME.")
	flags.StringVar(&r.registry, "registry", "", "Another registry than the repository's.")
	flags.StringVar(&r.ldflags, "ldflags", "", "The linker's flags.")
	flags.Func("platforms", "The platforms to build for, such as linux/amd64,linux/arm64.", func(list string) error {
		for name := range strings.SplitSeq(list, ",") {
			system, arch, _ := strings.Cut(name, "/")
			r.platforms = append(r.platforms, platform{system, arch})
		}
		return nil
	})
	return flags
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	r := &releaser{stdout: stdout}
	commands := map[string]struct {
		arguments int
		run       func(ctx context.Context, argument string) error
	}{
		"build":    {0, r.build},
		"sbom":     {1, r.sbom},
		"verify":   {1, r.verify},
		"push":     {1, r.push},
		"registry": {0, r.serveRegistry},
	}
	if len(args) == 0 {
		return errUsage
	}
	command, known := commands[args[0]]
	if !known {
		return errUsage
	}
	flags := r.flags(args[0])
	if err := flags.Parse(args[1:]); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() != command.arguments {
		return fmt.Errorf("%w: %s takes %d arguments", errUsage, args[0], command.arguments)
	}
	var err error
	if r.scratch, err = os.MkdirTemp("", "release-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(r.scratch) }()
	return command.run(ctx, flags.Arg(0))
}

// serveRegistry serves a registry in memory for the dry run, until the context ends.
func (r *releaser) serveRegistry(ctx context.Context, _ string) error {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)))
	defer server.Close()
	if _, err := fmt.Fprintln(r.stdout, server.Listener.Addr()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
