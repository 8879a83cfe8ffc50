package records

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

const (
	// smallBytes is the size below which an object is combined with others.
	smallBytes = 8 << 20

	// manySmall is how many small objects of a day are combined before the day is over.
	manySmall = 64

	// scanTimeout bounds a list by Scan and, with scanRate in bytes per second, the reading of an object.
	scanTimeout = 30 * time.Second
	scanRate    = 256 << 10
)

// Combine combines the small objects of a day into one, if there are several and the day is over, or if there are many. It
// deletes them after the new object was read back.
//
// Wherever it is interrupted, every record stays stored: repeats are dropped by readers, and by the next Combine. Two
// processes may combine a day at the same time. The key of the new object is made of those of the old ones, so that a key
// always has the same records, and nobody deletes an object whose records are not in another one that was just verified.
func Combine(ctx context.Context, bucket *blob.Bucket, day string, over bool) error {
	objects, err := listDay(ctx, bucket, day)
	if err != nil {
		return err
	}
	small := slices.DeleteFunc(objects, func(o *blob.ListObject) bool { return o.Size >= smallBytes })
	if len(small) < 2 || !over && len(small) < manySmall {
		return nil
	}
	digest := sha256.New()
	for _, object := range small {
		_, _ = fmt.Fprintln(digest, object.Key) // a hash returns no error
	}
	key := objectKey(day, digest.Sum(nil))
	count, err := writeCombined(ctx, bucket, key, small)
	if err != nil {
		return err
	}
	if err := verify(ctx, bucket, key, count); err != nil {
		return err
	}
	for _, object := range small {
		err := bucket.Delete(ctx, object.Key)
		if err != nil && gcerrors.Code(err) != gcerrors.NotFound { // another process deleted it
			return fmt.Errorf("deleting %s: %w", object.Key, err)
		}
	}
	return nil
}

// writeCombined writes the newest version of every record of the objects, and returns how many there are.
func writeCombined(ctx context.Context, bucket *blob.Bucket, key string, objects []*blob.ListObject) (count int, err error) {
	ctx, abort := context.WithCancel(ctx)
	defer abort()
	object, err := bucket.NewWriter(ctx, key, &blob.WriterOptions{ContentType: contentType})
	if err != nil {
		return 0, fmt.Errorf("writing %s: %w", key, err)
	}
	lines := newEncoder(object)
	reader := reader{ctx: ctx, bucket: bucket}
	reader.readDay(objects, func(record Record, failure error) bool {
		if err = failure; err == nil {
			count++
			err = lines.Encode(&record)
		}
		return err == nil
	})
	if err = cmp.Or(err, lines.Close()); err != nil {
		abort() // or Close would store what was written so far
		_ = object.Close()
		return 0, fmt.Errorf("combining into %s: %w", key, err)
	}
	if err := object.Close(); err != nil {
		return 0, fmt.Errorf("writing %s: %w", key, err)
	}
	return count, nil
}

// verify reads an object back and counts its records.
func verify(ctx context.Context, bucket *blob.Bucket, key string, want int) error {
	found := 0
	reader := reader{ctx: ctx, bucket: bucket}
	err := decode(reader.open(&blob.ListObject{Key: key}, nil), true, func(Record) error {
		found++
		return nil
	})
	if err == nil && found != want {
		err = fmt.Errorf("%d records instead of %d", found, want)
	}
	if err != nil {
		return fmt.Errorf("verifying %s: %w", key, err)
	}
	return nil
}

// Scan calls use for every version of every record of a day. unreadable are the errors of objects that are corrupt or were
// removed. err says that the store does not answer.
func Scan(
	ctx context.Context, bucket *blob.Bucket, day string, use func(uid string, number int64, digest string),
) (unreadable, err error) {
	listing, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	objects, err := listDay(listing, bucket, day)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		corrupt, err := scanObject(ctx, bucket, object, use)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", object.Key, err)
		}
		if corrupt != nil {
			unreadable = errors.Join(unreadable, fmt.Errorf("reading %s: %w", object.Key, corrupt))
		}
	}
	return unreadable, nil
}

// scanObject reads one object, with a time limit that permits the rate scanRate.
func scanObject(
	ctx context.Context, bucket *blob.Bucket, object *blob.ListObject, use func(uid string, number int64, digest string),
) (corrupt, err error) {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout+time.Duration(object.Size/scanRate)*time.Second)
	defer cancel()
	content := &storeReader{}
	open := func() (_ io.ReadCloser, err error) {
		content.Reader, content.failure = bucket.NewReader(ctx, object.Key, nil)
		return content, content.failure
	}
	corrupt = decode(open, true, func(record Record) error {
		use(record.UID, record.Number, record.Digest)
		return nil
	})
	if content.failure != nil && gcerrors.Code(content.failure) != gcerrors.NotFound {
		return nil, content.failure
	}
	return corrupt, nil
}

// storeReader tells the failures of the store from those of the content.
type storeReader struct {
	*blob.Reader
	failure error
}

func (r *storeReader) Read(p []byte) (n int, err error) {
	if n, err = r.Reader.Read(p); err != nil && !errors.Is(err, io.EOF) {
		r.failure = err
	}
	return n, err
}
