package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"gocloud.dev/blob"

	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/history"
	"github.com/tocsin-dev/tocsin/controllers/archive/bucket"
	"github.com/tocsin-dev/tocsin/controllers/archive/records"
)

// archiveVariable has the default of --archive.
const archiveVariable = "TOCSIN_ARCHIVE"

// archiveOptions are the options of the commands that read finished episodes.
type archiveOptions struct {
	*plugin
	url         string
	archiveOnly bool
	period      period
	filter      filter
	search      string
}

func (o *archiveOptions) addFlags(command *cobra.Command) {
	o.addArchiveFlag(command)
	o.filter.addFlags(o.plugin, command)
	flags := command.Flags()
	flags.BoolVar(&o.archiveOnly, "archive-only", false, "Do not read the incidents of the cluster.")
	flags.StringSliceVar(&o.filter.Hosts, "host", nil, "Select episodes of one of these hosts.")
	flags.StringVar(&o.search, "search", "",
		"Select episodes whose title, description, host, labels, key or name contain all these words.")
	flags.Lookup("severity").Usage = "Select episodes whose highest severity is one of these, such as critical,error."
	flags.Lookup("unacknowledged").Usage = "Select episodes that nobody acknowledged."
}

func (o *archiveOptions) addArchiveFlag(command *cobra.Command) {
	command.Flags().StringVar(&o.url, "archive", "",
		"URL of the archive: s3://…, gs://…, azblob://… or file:///… Default: $"+archiveVariable+".")
}

// open returns the source that the flags select, and completes the filter. Close it by the returned function. A problem with the
// cluster is a warning if there is an archive, since the history has to be readable without the cluster.
func (o *archiveOptions) open(ctx context.Context) (source *history.Source, closeSource func(), err error) {
	if err := o.filter.complete(); err != nil {
		return nil, nil, err
	}
	o.filter.Words = strings.Fields(o.search)
	if !o.filter.allNamespaces {
		if o.filter.Namespace, _, err = o.config.ToRawKubeConfigLoader().Namespace(); err != nil {
			return nil, nil, err
		}
	}
	source, closeSource = &history.Source{}, func() {}
	if source.Bucket, err = o.openBucket(ctx); err != nil {
		return nil, nil, err
	}
	if source.Bucket != nil {
		closeSource = func() { _ = source.Bucket.Close() }
	}
	if o.archiveOnly {
		if source.Bucket == nil {
			return nil, nil, errors.New("--archive-only requires --archive or " + archiveVariable)
		}
		return source, closeSource, nil
	}
	c, err := o.cluster()
	if err != nil && source.Bucket == nil {
		return nil, nil, err
	}
	if source.ClusterErr = err; err == nil {
		source.Cluster = c
	}
	return source, closeSource, nil
}

// openBucket opens the bucket of the archive; nil if none is set.
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

// episodes returns the selected episodes. It prints errors and notices as warnings, and records in missing whether episodes
// are missing. It ends with an error when ctx ends.
func (o *archiveOptions) episodes(
	ctx context.Context, source *history.Source, q history.Query, bar *progress, missing *int,
) iter.Seq2[*records.Record, error] {
	q.Filter, q.Progress = o.filter.Filter, bar.read
	return func(yield func(*records.Record, error) bool) {
		defer bar.clear()
		for record, err := range source.Episodes(ctx, q) {
			switch {
			case ctx.Err() != nil:
				bar.clear()
				_, _ = fmt.Fprintln(o.ErrOut, "Interrupted before all episodes were read.")
				yield(nil, ctx.Err())
				return
			case err != nil:
				bar.clear()
				_, _ = fmt.Fprintln(o.ErrOut, "Warning: "+safe(err.Error()))
				if !errors.As(err, new(history.NoticeError)) {
					*missing++
				}
			case !yield(record, nil):
				return
			}
		}
	}
}

// finish prints what is missing, and returns the error for the exit code.
func (o *archiveOptions) finish(source *history.Source, missing int) error {
	if source.Bucket == nil {
		_, _ = fmt.Fprintln(o.ErrOut, "Note: without --archive, only the incidents that still exist in the cluster are shown.")
	}
	if missing > 0 {
		_, _ = fmt.Fprintf(o.ErrOut, "Warning: incomplete: %s occurred.\n", plural(missing, "error"))
		return silentError{}
	}
	return nil
}
