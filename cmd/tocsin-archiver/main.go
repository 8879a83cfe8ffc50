// Command tocsin-archiver writes a record of every episode that ends to object storage, and notes in the Incident that it did.
//
// It is a process of its own because it holds the credentials of the bucket and the libraries of the cloud providers, and the
// manager parses what strangers send.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-logr/logr"
	"gocloud.dev/blob"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tocsin-dev/tocsin/cmd/tocsin-archiver/archiver"
	"github.com/tocsin-dev/tocsin/controllers/archive"
	"github.com/tocsin-dev/tocsin/internal/bucket"
	"github.com/tocsin-dev/tocsin/internal/process"
)

func main() {
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs the command line and returns the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	var c command
	flags := process.NewFlags("archiver")
	c.options.Bind(flags, "Archive")
	flags.StringVar(&c.url, "archive", "",
		"URL of the bucket to write records to: s3://, gs://, azblob:// or file:///. Required. Credentials come from the environment.")
	program := process.Program{
		Title:    "tocsin-archiver",
		Usage:    "Tocsin's archiver writes a record of every episode that ends to object storage.",
		Flags:    flags,
		Validate: c.validate,
		Run: func(ctx context.Context, config *rest.Config, log logr.Logger) error {
			archive.RegisterMetrics(metrics.Registry)
			return c.run(ctx, config, log)
		},
	}
	return program.Execute(args, stdout, stderr)
}

// command is what the flags say.
type command struct {
	options process.Options
	url     string // of the bucket
}

func (c *command) validate() error {
	if err := bucket.Check(c.url); err != nil {
		return errors.Join(fmt.Errorf("--archive: %w", err), c.options.Validate())
	}
	return c.options.Validate()
}

func (c *command) run(ctx context.Context, config *rest.Config, log logr.Logger) error {
	open := func(ctx context.Context) (*blob.Bucket, error) { return bucket.Open(ctx, c.url) }
	return archiver.Run(ctx, config, log, &c.options, open)
}
