package records

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/tocsin-dev/tocsin/internal/queue"
)

const (
	// maxLineBytes bounds a record; the largest content of an Incident with every character escaped is below it.
	maxLineBytes = 4 << 20

	// maxHeldBytes bounds the compressed objects of a day that are kept in memory. The others are read twice.
	maxHeldBytes = 32 << 20

	// smallBytes is the size below which an object is combined with others.
	smallBytes = 8 << 20

	// shortPeriod is for how long a period each day is listed, also one that has no objects.
	shortPeriod = 100 * 24 * time.Hour
)

// Query selects records.
type Query struct {
	From, To       time.Time      // resolvedTime in [From, To); zero: no bound
	WithoutContent bool           // leave Timeline and all of Alert but Title empty, which is faster
	Progress       func(Progress) // called after each object; may be nil
}

// Progress is how much of the archive has been read.
type Progress struct {
	Objects int
	Bytes   int64   // compressed
	Part    float64 // of what the query needs, from 0 to 1: each day is listed when it is read, and counts as much as any other
}

// All returns the newest version of every record that the query selects, the newest day first; records of a day have no order.
// An error about one object, which is corrupt or was removed while it was read, does not end the sequence; a failed list does.
// Memory: 32 MiB of compressed objects, the list of a day's objects, and about 150 bytes for each record of a day that has
// several.
func All(ctx context.Context, bucket *blob.Bucket, query Query) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		days, err := query.days(ctx, bucket)
		if err != nil {
			yield(Record{}, err)
			return
		}
		reader := reader{ctx: ctx, bucket: bucket, query: query}
		for i, day := range days {
			objects, err := list(ctx, bucket, day)
			if err != nil {
				yield(Record{}, err)
				return
			}
			reader.before, reader.perDay = float64(i)/float64(len(days)), 1/float64(len(days))
			reader.expect(objects)
			if !reader.readDay(day, objects, yield) {
				return
			}
		}
	}
}

// days returns the days that can have records that the query selects, the newest first: those of a short period without a
// request, and otherwise those that the archive has.
func (q *Query) days(ctx context.Context, bucket *blob.Bucket) (days []string, err error) {
	if isShort := !q.From.IsZero() && q.To.Sub(q.From) <= shortPeriod; isShort && !q.To.IsZero() {
		for day := q.To.Add(-1); Day(day) >= Day(q.From); day = day.AddDate(0, 0, -1) {
			days = append(days, Day(day))
		}
		return days, nil
	}
	for object, err := range objects(ctx, bucket, &blob.ListOptions{Prefix: dayPrefix, Delimiter: "/"}) {
		if err != nil {
			return nil, err
		}
		day := strings.TrimSuffix(strings.TrimPrefix(object.Key, dayPrefix), "/")
		if object.IsDir && (q.From.IsZero() || day >= Day(q.From)) && (q.To.IsZero() || day <= Day(q.To.Add(-1))) {
			days = append(days, day)
		}
	}
	slices.Reverse(days)
	return days, nil
}

// list lists the archive's objects of a day, sorted by key.
func list(ctx context.Context, bucket *blob.Bucket, day string) (found []*blob.ListObject, err error) {
	for object, err := range objects(ctx, bucket, &blob.ListOptions{Prefix: dayPrefix + day + "/"}) {
		if err != nil {
			return nil, err
		}
		if dayOf(object.Key) != "" {
			found = append(found, object)
		}
	}
	return found, nil
}

// objects lists objects. An error ends the sequence.
func objects(ctx context.Context, bucket *blob.Bucket, options *blob.ListOptions) iter.Seq2[*blob.ListObject, error] {
	return func(yield func(*blob.ListObject, error) bool) {
		objects := bucket.List(options)
		for {
			object, err := objects.Next(ctx)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				err = fmt.Errorf("listing the archive: %w", err)
			}
			if !yield(object, err) || err != nil {
				return
			}
		}
	}
}

func (q *Query) selects(resolved time.Time) bool {
	return (q.From.IsZero() || !resolved.Before(q.From)) && (q.To.IsZero() || resolved.Before(q.To))
}

type reader struct {
	ctx      context.Context
	bucket   *blob.Bucket
	query    Query
	progress Progress

	// before is the part of the days before the one that is read, and perDay that of each day.
	before, perDay     float64
	dayRead, dayExpect int64 // bytes of the day
}

// maxRelists bounds how often a day is listed again.
const maxRelists = 3

// source is an object that is read twice, if its day has several.
type source struct {
	*blob.ListObject
	held []byte // the content; nil: it is read again
	err  error  // of the first time
}

func (s source) hasVanished() bool { return gcerrors.Code(s.err) == gcerrors.NotFound }

// readDay yields the newest versions of the records of a day's objects. The archiver may combine some of them after they were
// listed: then it lists the day again. It returns false when the consumer wants no more.
func (r *reader) readDay(day string, objects []*blob.ListObject, yield func(Record, error) bool) bool {
	sources, newest := r.findNewest(objects)
	for relists := 0; relists < maxRelists && slices.ContainsFunc(sources, source.hasVanished); relists++ {
		objects, err := list(r.ctx, r.bucket, day)
		if err != nil {
			return yield(Record{}, err)
		}
		r.expect(objects)
		sources, newest = r.findNewest(objects)
	}
	return r.yieldNewest(sources, newest, yield)
}

// findNewest reads which versions of a day's records are the newest, nil for a single object, which has no repeats. It holds the
// content of the objects, as far as there is space, except of a single large one, which is not combined and so does not vanish.
func (r *reader) findNewest(objects []*blob.ListObject) (sources []source, newest versions) {
	sources = make([]source, len(objects))
	if len(objects) > 1 {
		newest = versions{}
	}
	space := int64(maxHeldBytes)
	for i, object := range objects {
		s := &sources[i]
		s.ListObject = object
		if newest == nil && object.Size >= smallBytes {
			continue
		}
		if object.Size <= space {
			s.held, s.err = r.bucket.ReadAll(r.ctx, s.Key)
			space -= int64(len(s.held))
		}
		if s.err == nil && newest != nil {
			s.err = r.note(s, newest)
		}
		if newest != nil || s.hasVanished() {
			r.advance(object)
		}
	}
	return sources, newest
}

func (r *reader) note(s *source, newest versions) error {
	for line, err := range r.lines(s) {
		var record header
		if err == nil {
			err = json.Unmarshal(line, &record)
		}
		if err != nil {
			return err
		}
		newest.note(record)
	}
	return nil
}

// yieldNewest yields the records that are the newest versions, and an error for each object that cannot be read.
func (r *reader) yieldNewest(sources []source, newest versions, yield func(Record, error) bool) bool {
	for i := range sources {
		s := &sources[i]
		for line, err := range r.lines(s) {
			var record Record
			if err == nil {
				record, err = r.decode(line)
			}
			if err != nil {
				s.err = cmp.Or(s.err, err)
				break
			}
			isNewest := newest == nil || newest.take(record.header())
			if isNewest && r.query.selects(record.ResolvedTime.Time) && !yield(record, nil) {
				return false
			}
		}
		if s.err != nil && !yield(Record{}, fmt.Errorf("reading %s: %w", s.Key, s.err)) {
			return false
		}
		if newest == nil && !s.hasVanished() {
			r.advance(s.ListObject)
		}
		s.held = nil
	}
	return true
}

// expect begins to count the objects of a day, from none when it is listed again.
func (r *reader) expect(objects []*blob.ListObject) {
	r.dayRead, r.dayExpect = 0, 0
	for _, object := range objects {
		r.dayExpect += object.Size
	}
}

func (r *reader) advance(object *blob.ListObject) {
	r.progress.Objects++
	r.progress.Bytes += object.Size
	r.dayRead += object.Size
	r.progress.Part = r.before + r.perDay*float64(r.dayRead)/float64(max(1, r.dayExpect))
	if r.query.Progress != nil {
		r.query.Progress(r.progress)
	}
}

// lines returns the lines of an object. An error is the last element.
func (r *reader) lines(s *source) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var content io.Reader = bytes.NewReader(s.held)
		if s.held == nil {
			opened, err := r.bucket.NewReader(r.ctx, s.Key, nil)
			if err != nil {
				yield(nil, err)
				return
			}
			defer func() { _ = opened.Close() }()
			content = opened
		}
		text, err := gzip.NewReader(content)
		if err != nil {
			yield(nil, err)
			return
		}
		lines := bufio.NewScanner(text)
		lines.Buffer(make([]byte, 0, 64<<10), maxLineBytes)
		for lines.Scan() {
			if !yield(lines.Bytes(), nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(nil, err)
		}
	}
}

func (r *reader) decode(line []byte) (record Record, err error) {
	if r.query.WithoutContent {
		var hidden struct { // the fields that are closer to the top
			*Record
			Alert    struct{ Title string } `json:"alert"`
			Timeline json.RawMessage        `json:"timeline"`
		}
		hidden.Record = &record
		err = json.Unmarshal(line, &hidden)
		record.Alert.Title = hidden.Alert.Title
	} else {
		err = json.Unmarshal(line, &record)
	}
	if err != nil {
		err = fmt.Errorf("decoding a record: %w", err)
	}
	return record, err
}

// header is the part of a record that decides between versions.
type header struct {
	Key
	ResourceVersion string `json:"resourceVersion"`
	AlertCount      int64  `json:"alertCount"`
}

func (r *Record) header() header { return header{r.Key(), r.ResourceVersion, r.AlertCount} }

func (h header) isNewerThan(other header) bool {
	return queue.NewerVersion(h.ResourceVersion, other.ResourceVersion) ||
		h.ResourceVersion == other.ResourceVersion && h.AlertCount > other.AlertCount
}

type versions map[Key]header

func (v versions) note(h header) {
	if known, ok := v[h.Key]; !ok || h.isNewerThan(known) {
		v[h.Key] = h
	}
}

// take reports whether a record is the newest version, the first time.
func (v versions) take(h header) bool {
	if known, ok := v[h.Key]; !ok || known != h {
		return false
	}
	delete(v, h.Key)
	return true
}
