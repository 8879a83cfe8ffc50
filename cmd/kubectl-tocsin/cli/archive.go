package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"gocloud.dev/blob"

	"github.com/tocsin-dev/tocsin/internal/bucket"
	"github.com/tocsin-dev/tocsin/internal/history"
	"github.com/tocsin-dev/tocsin/internal/records"
)

const archiveVariable = "TOCSIN_ARCHIVE"

// archiveOptions are the options of the commands that read finished episodes, and what they have read.
type archiveOptions struct {
	*plugin

	flush func() // prints the episodes that wait to be printed; nil: none ever waits

	url         string
	archiveOnly bool
	period      period
	filter      filter
	search      string

	source  *history.Source
	missing int // errors
}

func (o *archiveOptions) addFlags(command *cobra.Command) {
	o.addArchiveFlag(command)
	o.filter.addFlags(command)
	flags := command.Flags()
	flags.BoolVar(&o.archiveOnly, "archive-only", false, "Do not read the incidents of the cluster.")
	flags.StringSliceVar(&o.filter.Hosts, "host", nil, "Select episodes of one of these hosts.")
	flags.StringVar(&o.search, "search", "",
		"Select episodes whose title, description, host, labels, key or name contain all these words.")
	flags.Lookup("severity").Usage = "Select episodes whose highest severity is one of these, such as critical,error."
	flags.Lookup("unacknowledged").Usage = "Select episodes that nobody acknowledged."
	flags.Lookup("assignee").Usage = "Select episodes that were assigned to one of these people at their end."
	flags.Lookup("unassigned").Usage = "Select episodes that were assigned to nobody at their end."
}

func (o *archiveOptions) addArchiveFlag(command *cobra.Command) {
	command.Flags().StringVar(&o.url, "archive", "",
		"URL of the archive: s3://…, gs://…, azblob://… or file:///… Default: $"+archiveVariable+".")
}

// read calls each for the selected episodes. It counts errors, and prints them and notices as warnings. A problem with the
// cluster is a warning if there is an archive, since the history has to be readable without the cluster.
func (o *archiveOptions) read(ctx context.Context, q history.Query, bar *progress, each func(*records.Record) error) error {
	if err := o.open(ctx); err != nil {
		return err
	}
	if o.source.Bucket != nil {
		defer func() { _ = o.source.Bucket.Close() }()
	}
	defer bar.clear()
	q.Filter, q.Progress = o.filter.Filter, bar.read
	for record, err := range o.source.Episodes(ctx, q) {
		switch {
		case ctx.Err() != nil:
			bar.clear()
			if o.flush != nil {
				o.flush()
			}
			o.notef("Interrupted before all episodes were read.")
			return ctx.Err()
		case err != nil:
			bar.clear()
			o.notef("Warning: %s", safe(err.Error()))
			if !errors.As(err, new(history.NoticeError)) {
				o.missing++
			}
			continue
		}
		if err := each(record); err != nil {
			return err
		}
	}
	return nil
}

// open completes the filter, and opens the source that the flags select.
func (o *archiveOptions) open(ctx context.Context) error {
	err := o.filter.complete()
	if err != nil {
		return err
	}
	o.filter.Words = strings.Fields(o.search)
	if !o.filter.allNamespaces && o.filter.Namespace == "" {
		if o.filter.Namespace, _, err = o.config.ToRawKubeConfigLoader().Namespace(); err != nil {
			return err
		}
	}
	bucket, err := o.openBucket(ctx)
	if err != nil {
		return err
	}
	o.source = &history.Source{Bucket: bucket}
	if o.archiveOnly {
		if bucket == nil {
			return errors.New("--archive-only requires --archive or " + archiveVariable)
		}
		return nil
	}
	c, err := o.cluster()
	switch {
	case err == nil:
		o.source.Cluster = c
	case bucket == nil:
		return err
	}
	o.source.ClusterErr = err
	return nil
}

func (o *archiveOptions) openBucket(ctx context.Context) (*blob.Bucket, error) {
	url := cmp.Or(o.url, os.Getenv(archiveVariable))
	if url == "" {
		return nil, nil
	}
	opened, err := bucket.Open(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("--archive: %w", err)
	}
	return opened, nil
}

// finish prints what is missing, and returns the error for the exit code.
func (o *archiveOptions) finish() error {
	if o.source.Bucket == nil {
		o.notef("Note: without --archive, only the incidents that still exist in the cluster are shown.")
	}
	if o.missing > 0 {
		o.notef("Warning: incomplete: %s occurred.", plural(o.missing, "error"))
		return silentError{}
	}
	return nil
}

// read shows how much of an archive has been read.
func (p *progress) read(of records.Progress) {
	full := min(progressWidth, int(of.Part*progressWidth))
	const mebibyte = 1 << 20
	p.update("%s%s %3.0f%%: %.1f MiB in %d objects", strings.Repeat("█", full), strings.Repeat("░", progressWidth-full),
		of.Part*100, float64(of.Bytes)/mebibyte, of.Objects)
}
