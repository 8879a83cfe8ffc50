package simulation

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/driver"
	"gocloud.dev/gcerrors"

	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
)

// bucket is one in memory, which all archivers share.
type bucket struct {
	mu      sync.Mutex
	objects map[string][]byte
	failure bucketFailure
	ended   chan struct{} // closed at the end of the failure
}

// bucketFailure is how a bucket fails, if it does.
type bucketFailure string

const (
	succeeds   bucketFailure = ""
	fails      bucketFailure = "fails"       // at once
	hangs      bucketFailure = "hangs"       // to the end of the failure
	storesOnly bucketFailure = "stores only" // objects are stored, and the response is lost
	isSlow     bucketFailure = "is slow"     // by slowness
)

// breakBucket has the bucket fail for a while.
type breakBucket struct {
	how bucketFailure
	d   time.Duration
}

func (o breakBucket) do(w *world) {
	w.archive.fail(o.how)
	w.later(o.d, func() { w.archive.fail(succeeds) })
}

func newBucket() *bucket {
	return &bucket{objects: map[string][]byte{}, ended: make(chan struct{})}
}

// fail ends the failure and begins another one.
func (b *bucket) fail(how bucketFailure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.ended)
	b.failure, b.ended = how, make(chan struct{})
}

// slowness is how late a slow bucket answers: an Incident may end and be opened again meanwhile.
const slowness = 12 * time.Second

// longestAnswer is the longest that a call to the bucket takes in each direction.
const longestAnswer = 40 * time.Millisecond

var (
	errBucket   = errors.New("503: the bucket is unavailable")
	errNoObject = errors.New("404: no such object")
)

// access is a bucket as a process sees it. It implements driver.Bucket, as far as the archiver needs it.
type access struct {
	driver.Bucket
	*bucket
	*link
}

// open is an archive.OpenBucket.
func (a access) open(context.Context) (*blob.Bucket, error) { return blob.NewBucket(a), nil }

// call calls the bucket, which may fail. do runs under the lock.
func (a access) call(ctx context.Context, verb, key string, do func() error) error {
	call := &apiserver.Call{Client: a.client, Verb: verb, Resource: "bucket", Name: key}
	err := errors.Join(a.run(), a.travel(ctx, "arrive", call, longestAnswer))
	if err != nil {
		return err
	}
	a.bucket.mu.Lock()
	failure, ended := a.failure, a.ended
	if failure != fails && failure != hangs {
		err = do()
	}
	a.bucket.mu.Unlock()
	switch failure {
	case fails:
		err = errBucket
	case hangs, storesOnly:
		select {
		case <-ended:
			err = errBucket
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-a.dead:
			err = errDead
		}
	case isSlow:
		err = errors.Join(err, sleep(ctx, slowness, nil))
	default:
	}
	return errors.Join(err, a.travel(ctx, "leave", call, longestAnswer), a.run())
}

// ListPaged implements driver.Bucket. All objects are in one page.
func (a access) ListPaged(ctx context.Context, options *driver.ListOptions) (*driver.ListPage, error) {
	page := &driver.ListPage{}
	err := a.call(ctx, "list", options.Prefix, func() error {
		for _, key := range slices.Sorted(maps.Keys(a.objects)) {
			rest, matches := strings.CutPrefix(key, options.Prefix)
			folder, _, inFolder := strings.Cut(rest, "/")
			object := &driver.ListObject{Key: key, Size: int64(len(a.objects[key]))}
			if inFolder && options.Delimiter != "" {
				object = &driver.ListObject{Key: options.Prefix + folder + "/", IsDir: true}
			}
			last := len(page.Objects) - 1
			if matches && (last < 0 || page.Objects[last].Key != object.Key) {
				page.Objects = append(page.Objects, object)
			}
		}
		return nil
	})
	return page, err
}

// NewRangeReader implements driver.Bucket. The archiver reads whole objects.
func (a access) NewRangeReader(ctx context.Context, key string, _, _ int64, _ *driver.ReaderOptions) (driver.Reader, error) {
	var content []byte
	err := a.call(ctx, "get", key, func() error {
		var found bool
		if content, found = a.objects[key]; !found {
			return errNoObject
		}
		return nil
	})
	return &objectReader{Reader: bytes.NewReader(content), size: int64(len(content))}, err
}

// objectReader implements driver.Reader.
type objectReader struct {
	*bytes.Reader
	size int64
}

// Close implements driver.Reader.
func (*objectReader) Close() error { return nil }

// As implements driver.Reader.
func (*objectReader) As(any) bool { return false }

// Attributes implements driver.Reader.
func (r *objectReader) Attributes() *driver.ReaderAttributes {
	return &driver.ReaderAttributes{Size: r.size}
}

// NewTypedWriter implements driver.Bucket.
func (a access) NewTypedWriter(ctx context.Context, key, _ string, _ *driver.WriterOptions) (driver.Writer, error) {
	return &objectWriter{access: a, ctx: ctx, key: key}, nil
}

// objectWriter implements driver.Writer.
type objectWriter struct {
	bytes.Buffer
	access access
	ctx    context.Context
	key    string
}

// Close implements driver.Writer. It stores the object, unless the context has ended.
func (w *objectWriter) Close() error {
	return w.access.call(w.ctx, "put", w.key, func() error {
		w.access.objects[w.key] = w.Bytes()
		return nil
	})
}

// Delete implements driver.Bucket.
func (a access) Delete(ctx context.Context, key string, _ *driver.DeleteOptions) error {
	return a.call(ctx, "delete", key, func() error {
		if _, found := a.objects[key]; !found {
			return errNoObject
		}
		delete(a.objects, key)
		return nil
	})
}

// ErrorCode implements driver.Bucket.
func (access) ErrorCode(err error) gcerrors.ErrorCode {
	if errors.Is(err, errNoObject) {
		return gcerrors.NotFound
	}
	return gcerrors.Unknown
}

// Close implements driver.Bucket.
func (access) Close() error { return nil }
