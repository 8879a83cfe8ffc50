package records

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/tocsin-dev/tocsin/controllers/fold"
)

const (
	// maxLineBytes bounds a record; the largest content of an Incident with every character escaped is below it.
	maxLineBytes = 4 << 20

	// maxHeldBytes bounds the compressed objects of a day that are kept in memory between the two passes over them. The
	// others are read twice.
	maxHeldBytes = 32 << 20
)

// Query selects records.
type Query struct {
	From, To       time.Time      // resolvedTime in [From, To); zero: no bound
	NewestFirst    bool           // the order of the days; records of a day have no order
	WithoutContent bool           // leave Timeline and all of Alert but Title empty, which is faster
	Progress       func(Progress) // called after each object; may be nil
}

// Progress is how much of the objects that a query needs has been read.
type Progress struct {
	Objects, ObjectsTotal int
	Bytes, BytesTotal     int64 // compressed
}

// expect adds objects to the total n times.
func (p *Progress) expect(objects []*blob.ListObject, n int) {
	for _, object := range objects {
		p.ObjectsTotal += n
		p.BytesTotal += int64(n) * object.Size
	}
}

// All returns the newest version of every record that the query selects. An error about one object, which is corrupt or was
// removed while it was read, does not end the sequence; a failed list does. Memory: 32 MiB of compressed objects, and about
// 150 bytes for each record of a day that has several objects.
func All(ctx context.Context, bucket *blob.Bucket, query Query) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		objects, err := list(ctx, bucket, "")
		if err != nil {
			yield(Record{}, err)
			return
		}
		reader, days := reader{ctx: ctx, bucket: bucket, query: query}, map[string][]*blob.ListObject{}
		for _, object := range objects {
			if day := dayOf(object.Key); query.needs(day) {
				days[day] = append(days[day], object)
				reader.progress.expect([]*blob.ListObject{object}, 1)
			}
		}
		names := slices.Sorted(maps.Keys(days))
		if query.NewestFirst {
			slices.Reverse(names)
		}
		for _, day := range names {
			if !reader.readListed(day, days[day], yield) {
				return
			}
		}
	}
}

// list lists the archive's objects of a day, or of all days, sorted by key.
func list(ctx context.Context, bucket *blob.Bucket, day string) (found []*blob.ListObject, err error) {
	objects := bucket.List(&blob.ListOptions{Prefix: dayPrefix + day})
	for {
		object, err := objects.Next(ctx)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing the archive: %w", err)
		}
		if dayOf(object.Key) != "" {
			found = append(found, object)
		}
	}
}

// needs reports whether a day can have records that the query selects.
func (q *Query) needs(day string) bool {
	return (q.From.IsZero() || day >= Day(q.From)) && (q.To.IsZero() || day <= Day(q.To.Add(-1)))
}

func (q *Query) selects(resolved time.Time) bool {
	return (q.From.IsZero() || !resolved.Before(q.From)) && (q.To.IsZero() || resolved.Before(q.To))
}

// reader reads the objects of a query.
type reader struct {
	ctx      context.Context
	bucket   *blob.Bucket
	query    Query
	progress Progress
}

// maxRelists bounds how often a day is listed again.
const maxRelists = 3

// readListed yields the records of a day's objects. The archiver may combine some of them after they were listed: then it lists
// the day again. It returns false when the consumer wants no more.
func (r *reader) readListed(day string, objects []*blob.ListObject, yield func(Record, error) bool) bool {
	for retries := maxRelists; ; retries-- {
		before, pass := r.progress, pass{reader: r, yield: yield, retry: retries > 0}
		pass.read(objects)
		if !pass.vanished {
			return !pass.ended
		}
		r.progress = before
		r.progress.expect(objects, -1)
		var err error
		if objects, err = list(r.ctx, r.bucket, day); err != nil {
			return yield(Record{}, err)
		}
		r.progress.expect(objects, 1)
	}
}

// pass yields the newest versions of the records of a day's objects.
type pass struct {
	*reader
	yield    func(Record, error) bool
	retry    bool     // an object that has vanished before anything was yielded ends the pass, and is not reported
	vanished bool     // that happened
	ended    bool     // that happened, or the consumer wants no more
	newest   versions // nil: a single object has no repeats
}

// source is an object that is read twice.
type source struct {
	*blob.ListObject
	held   []byte // the content; nil: it is read again
	failed bool   // the first time
}

func (p *pass) read(objects []*blob.ListObject) {
	sources := p.findNewest(objects)
	for i := range sources {
		if p.ended {
			return
		}
		p.yieldNewest(&sources[i])
		sources[i].held = nil
		if p.newest == nil {
			p.advance(sources[i].ListObject)
		}
	}
}

// findNewest reads which versions of the records are the newest, if a day has several objects. It holds their content, as
// far as there is space.
func (p *pass) findNewest(objects []*blob.ListObject) []source {
	sources, size := make([]source, len(objects)), int64(0)
	for i, object := range objects {
		sources[i].ListObject = object
	}
	if len(objects) < 2 {
		return sources
	}
	p.newest = versions{}
	for i := range sources {
		s := &sources[i]
		if err := p.note(s, size+s.Size <= maxHeldBytes); err != nil {
			s.failed = true
			p.report(s, err)
		}
		size += int64(len(s.held))
		if p.advance(s.ListObject); p.ended {
			break
		}
	}
	return sources
}

// note notes which versions of records an object has.
func (p *pass) note(s *source, hold bool) (err error) {
	if hold {
		if s.held, err = p.bucket.ReadAll(p.ctx, s.Key); err != nil {
			return err
		}
	}
	for line, err := range p.lines(s) {
		var record header
		if err == nil {
			err = json.Unmarshal(line, &record)
		}
		if err != nil {
			return err
		}
		p.newest.note(record)
	}
	return nil
}

// yieldNewest yields those records of an object that are the newest versions.
func (p *pass) yieldNewest(s *source) {
	for line, err := range p.lines(s) {
		var record Record
		if err == nil {
			record, err = p.decode(line)
		}
		switch {
		case err != nil:
			if !s.failed {
				p.report(s, err)
			}
			return
		case p.newest != nil && !p.newest.take(record.header()) || !p.query.selects(record.ResolvedTime.Time):
			continue
		}
		if p.retry = false; !p.yield(record, nil) {
			p.ended = true
			return
		}
	}
}

// report yields the error of an object.
func (p *pass) report(s *source, err error) {
	p.vanished = p.retry && gcerrors.Code(err) == gcerrors.NotFound
	p.ended = p.vanished || !p.yield(Record{}, fmt.Errorf("reading %s: %w", s.Key, err))
	p.retry = false
}

func (r *reader) advance(object *blob.ListObject) {
	r.progress.Objects++
	r.progress.Bytes += object.Size
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

// decode decodes a record, with the content that the query wants.
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
	UID             string `json:"uid"`
	Number          int64  `json:"episode"`
	ResourceVersion string `json:"resourceVersion"`
	AlertCount      int64  `json:"alertCount"`
}

func (r *Record) header() header { return header{r.UID, r.Number, r.ResourceVersion, r.AlertCount} }

func (h header) isNewerThan(other header) bool {
	return fold.NewerVersion(h.ResourceVersion, other.ResourceVersion) ||
		h.ResourceVersion == other.ResourceVersion && h.AlertCount > other.AlertCount
}

// versions are the newest known versions of records.
type versions map[Key]header

// note enters a version of a record.
func (v versions) note(h header) {
	key := Key{h.UID, h.Number}
	if known, ok := v[key]; !ok || h.isNewerThan(known) {
		v[key] = h
	}
}

// take reports whether a record is the newest version, the first time.
func (v versions) take(h header) bool {
	key := Key{h.UID, h.Number}
	known, ok := v[key]
	if !ok || known != h {
		return false
	}
	delete(v, key)
	return true
}
