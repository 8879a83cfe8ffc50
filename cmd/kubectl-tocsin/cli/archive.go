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

const (
	archiveVariable = "TOCSIN_ARCHIVE"
	progressWidth   = 30
)

// archiveOptions are the options of the commands that read finished episodes, and what they have read.
type archiveOptions struct {
	*plugin

	flush func() // prints the episodes that wait to be printed; nil: none ever waits

	archive     archiveFlag
	archiveOnly bool
	period      period
	filter      filter
	namespace   string // empty for all
	hosts       []string
	search      string

	source  *history.Source
	missing int // errors
}

func (o *archiveOptions) addFlags(command *cobra.Command) {
	o.archive.add(command)
	o.filter.addFlags(command)
	flags := command.Flags()
	flags.BoolVar(&o.archiveOnly, "archive-only", false, "Do not read the incidents of the cluster.")
	flags.StringSliceVar(&o.hosts, "host", nil, "Select episodes of one of these hosts.")
	flags.StringVar(&o.search, "search", "",
		"Select episodes whose title, description, host, labels, key or name contain all these words.")
	flags.Lookup("severity").Usage = "Select episodes whose highest severity is one of these, such as critical,error."
	flags.Lookup("unacknowledged").Usage = "Select episodes that nobody acknowledged."
	flags.Lookup("assignee").Usage = "Select episodes that were assigned to one of these people at their end."
	flags.Lookup("unassigned").Usage = "Select episodes that were assigned to nobody at their end."
}

// read calls each for the selected episodes. It counts errors, and prints them and notices as warnings. A problem with the
// cluster is a warning if there is an archive, since the history has to be readable without the cluster.
func (o *archiveOptions) read(ctx context.Context, q history.Query, bar *progress, each func(*records.Record) error) error {
	if err := o.open(ctx); err != nil {
		return err
	}
	defer archive{o.source.Bucket}.close()
	defer bar.clear()
	q.Filter = history.Filter{Filter: o.filter.Filter, Namespace: o.namespace, Hosts: o.hosts, Words: strings.Fields(o.search)}
	q.Progress = bar.read
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
	if !o.filter.allNamespaces && o.namespace == "" {
		if o.namespace, _, err = o.config.ToRawKubeConfigLoader().Namespace(); err != nil {
			return err
		}
	}
	archive, err := o.archive.open(ctx)
	if err != nil {
		return err
	}
	o.source = &history.Source{Bucket: archive.Bucket}
	if o.archiveOnly {
		if archive.Bucket == nil {
			return errors.New("--archive-only requires --archive or " + archiveVariable)
		}
		return nil
	}
	c, err := o.cluster()
	switch {
	case err == nil:
		o.source.Cluster = c
	case archive.Bucket == nil:
		return err
	}
	o.source.ClusterErr = err
	return nil
}

// archiveFlag is the flag for the URL of the archive.
type archiveFlag struct{ url string }

func (f *archiveFlag) add(command *cobra.Command) {
	command.Flags().StringVar(&f.url, "archive", "",
		"URL of the archive: s3://…, gs://…, azblob://… or file:///… Default: $"+archiveVariable+".")
}

// archive is an open archive. It has no bucket if there is no archive.
type archive struct{ *blob.Bucket }

// open opens the archive that the flag or the environment names.
func (f *archiveFlag) open(ctx context.Context) (archive, error) {
	url := cmp.Or(f.url, os.Getenv(archiveVariable))
	if url == "" {
		return archive{}, nil
	}
	opened, err := bucket.Open(ctx, url)
	if err != nil {
		return archive{}, fmt.Errorf("--archive: %w", err)
	}
	return archive{opened}, nil
}

func (a archive) close() {
	if a.Bucket != nil {
		_ = a.Close()
	}
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
