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
	"maps"
	"slices"
	"strings"
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
		days, err := listDays(ctx, bucket, query)
		if err != nil {
			yield(Record{}, err)
			return
		}
		reader := reader{ctx: ctx, bucket: bucket, query: query}
		for _, day := range days {
			reader.progress.expect(day, 1)
		}
		for _, day := range days {
			if !reader.readListed(day, yield) {
				return
			}
		}
	}
}

// listDays lists the objects that a query needs, by day and in the query's order.
func listDays(ctx context.Context, bucket *blob.Bucket, query Query) ([][]*blob.ListObject, error) {
	objects, err := list(ctx, bucket, dayPrefix)
	if err != nil {
		return nil, err
	}
	days := map[string][]*blob.ListObject{}
	for _, object := range objects {
		if day := dayOf(object.Key); query.needs(day) {
			days[day] = append(days[day], object)
		}
	}
	names := slices.Sorted(maps.Keys(days))
	if query.NewestFirst {
		slices.Reverse(names)
	}
	ordered := make([][]*blob.ListObject, len(names))
	for i, name := range names {
		ordered[i] = days[name]
	}
	return ordered, nil
}

// listDay lists the objects of a day, sorted by key.
func listDay(ctx context.Context, bucket *blob.Bucket, day string) ([]*blob.ListObject, error) {
	return list(ctx, bucket, dayPrefix+day+"/")
}

// list lists the archive's objects with a prefix, sorted by key.
func list(ctx context.Context, bucket *blob.Bucket, prefix string) ([]*blob.ListObject, error) {
	var found []*blob.ListObject
	objects := bucket.List(&blob.ListOptions{Prefix: prefix})
	for {
		object, err := objects.Next(ctx)
		if errors.Is(err, io.EOF) {
			slices.SortFunc(found, func(a, b *blob.ListObject) int { return strings.Compare(a.Key, b.Key) })
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

// readListed yields the records of a day's objects. A leader may combine some of them after they were listed: then it lists
// the day again. It returns false when the consumer wants no more.
func (r *reader) readListed(objects []*blob.ListObject, yield func(Record, error) bool) bool {
	for range maxRelists {
		before := r.progress
		more, vanished := r.tryDay(objects, true, yield)
		if !vanished {
			return more
		}
		r.progress = before
		r.progress.expect(objects, -1)
		var err error
		if objects, err = listDay(r.ctx, r.bucket, dayOf(objects[0].Key)); err != nil {
			return yield(Record{}, err)
		}
		r.progress.expect(objects, 1)
		if len(objects) == 0 {
			return true
		}
	}
	return r.readDay(objects, yield)
}

// readDay yields the records of a day's objects. It returns false when the consumer wants no more.
func (r *reader) readDay(objects []*blob.ListObject, yield func(Record, error) bool) bool {
	more, _ := r.tryDay(objects, false, yield)
	return more
}

// tryDay is readDay. If retry is set and an object has vanished before anything of the day was yielded, it says so instead.
func (r *reader) tryDay(objects []*blob.ListObject, retry bool, yield func(Record, error) bool) (more, vanished bool) {
	report := func(object *blob.ListObject, err error) (more bool) {
		if err == nil || errors.Is(err, errStop) {
			return err == nil
		}
		if vanished = retry && gcerrors.Code(err) == gcerrors.NotFound; vanished {
			return false
		}
		retry = false
		return yield(Record{}, fmt.Errorf("reading %s: %w", object.Key, err))
	}
	held := make([][]byte, len(objects))
	newest, ok := r.findNewest(objects, held, report)
	if !ok {
		return false, vanished
	}
	for i, object := range objects {
		err := decode(r.open(object, held[i]), r.query.WithoutContent, func(record Record) error {
			if newest != nil && !newest.take(&record) || !r.query.selects(record.ResolvedTime.Time) {
				return nil
			}
			if !yield(record, nil) {
				return errStop
			}
			return nil
		})
		held[i] = nil
		if newest == nil { // the first pass has not counted and reported it
			r.advance(object)
			if !report(object, err) {
				return false, vanished
			}
		}
		if errors.Is(err, errStop) {
			return false, false
		}
	}
	return true, false
}

// errStop ends the reading of an object.
var errStop = errors.New("stop")

// findNewest reads which versions of the records are the newest, if a day has several objects. It holds their content, as
// far as there is space.
func (r *reader) findNewest(
	objects []*blob.ListObject, held [][]byte, report func(*blob.ListObject, error) bool,
) (newest versions, ok bool) {
	if len(objects) < 2 {
		return nil, true
	}
	newest = versions{}
	size := 0
	for i, object := range objects {
		content := r.open(object, nil)
		if size+int(object.Size) <= maxHeldBytes {
			data, err := readAll(content)
			content = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), err }
			held[i] = data
			size += len(data)
		}
		err := decodeLines(content, func(line []byte) error {
			var record header
			if err := json.Unmarshal(line, &record); err != nil {
				return err
			}
			newest.note(&record)
			return nil
		})
		r.advance(object)
		if !report(object, err) {
			return nil, false
		}
	}
	return newest, true
}

func (r *reader) advance(object *blob.ListObject) {
	r.progress.Objects++
	r.progress.Bytes += object.Size
	if r.query.Progress != nil {
		r.query.Progress(r.progress)
	}
}

// opener opens an object.
type opener func() (io.ReadCloser, error)

// open returns an opener of an object, or of its content if that is held.
func (r *reader) open(object *blob.ListObject, held []byte) opener {
	return func() (io.ReadCloser, error) {
		if held != nil {
			return io.NopCloser(bytes.NewReader(held)), nil
		}
		return r.bucket.NewReader(r.ctx, object.Key, nil)
	}
}

func readAll(open opener) ([]byte, error) {
	content, err := open()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(content)
	return data, errors.Join(err, content.Close())
}

// decode calls use for each record of an object until it returns an error.
func decode(open opener, withoutContent bool, use func(Record) error) error {
	return decodeLines(open, func(line []byte) error {
		var record Record
		var err error
		if withoutContent {
			record, err = decodeWithoutContent(line)
		} else {
			err = json.Unmarshal(line, &record)
		}
		if err != nil {
			return fmt.Errorf("decoding a record: %w", err)
		}
		return use(record)
	})
}

// decodeWithoutContent skips the content except the title: fields of the same names that are closer to the top hide it.
func decodeWithoutContent(line []byte) (Record, error) {
	var record struct {
		*Record
		Alert    struct{ Title string } `json:"alert"`
		Timeline skipped                `json:"timeline"`
	}
	record.Record = &Record{}
	err := json.Unmarshal(line, &record)
	record.Record.Alert.Title = record.Alert.Title
	return *record.Record, err
}

// skipped is a JSON value that is not decoded.
type skipped struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*skipped) UnmarshalJSON([]byte) error { return nil }

// decodeLines calls use for each line of an object until it returns an error.
func decodeLines(open opener, use func([]byte) error) (err error) {
	content, err := open()
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, content.Close()) }()
	text, err := gzip.NewReader(content)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(text)
	lines.Buffer(make([]byte, 0, 64<<10), maxLineBytes)
	for lines.Scan() {
		if err := use(lines.Bytes()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// header is the part of a record that decides between versions.
type header struct {
	UID             string `json:"uid"`
	Number          int64  `json:"episode"`
	ResourceVersion string `json:"resourceVersion"`
	AlertCount      int64  `json:"alertCount"`
}

// versions are the newest known versions of records.
type versions map[Key]version

type version struct {
	resourceVersion string
	alertCount      int64
	taken           bool
}

func (v version) isNewerThan(other version) bool {
	if fold.NewerVersion(v.resourceVersion, other.resourceVersion) {
		return true
	}
	return v.resourceVersion == other.resourceVersion && v.alertCount > other.alertCount
}

// note enters a version of a record.
func (v versions) note(record *header) {
	key, found := Key{record.UID, record.Number}, version{resourceVersion: record.ResourceVersion, alertCount: record.AlertCount}
	if known, ok := v[key]; !ok || found.isNewerThan(known) {
		v[key] = found
	}
}

// take reports whether a record is the newest version, the first time.
func (v versions) take(record *Record) bool {
	known, ok := v[record.Key()]
	if !ok || known.taken || known.resourceVersion != record.ResourceVersion || known.alertCount != record.AlertCount {
		return false
	}
	known.taken = true
	v[record.Key()] = known
	return true
}
