package records

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

const (
	// manySmall is how many small objects of a day are combined before the day is over.
	manySmall = 64

	// groupBytes is how many bytes are combined into one object, about. At least two objects are.
	groupBytes = 64 << 20

	// groupTimeout bounds the combining of a group.
	groupTimeout = 10 * time.Minute
)

// Combine combines the small objects of a day, if there are several and the day is over, or if there are many. It does so in
// groups, and deletes the objects of a group after the new one was read back: what was combined stays so, and a group that fails
// stops no other.
//
// Wherever it is interrupted, every record stays stored: repeats are dropped by readers, and by the next Combine. Two
// processes may combine a day at the same time. The key of a new object is made of those of the old ones, so that a key
// always has the same records, and nobody deletes an object whose records are not in another one that was just verified.
func Combine(ctx context.Context, bucket *blob.Bucket, day string, over bool) error {
	for {
		objects, err := list(ctx, bucket, day)
		if err != nil {
			return err
		}
		small := slices.DeleteFunc(objects, func(o *blob.ListObject) bool { return o.Size >= smallBytes })
		if len(small) < 2 || !over && len(small) < manySmall {
			return nil
		}
		var failures []error
		for _, group := range groups(small) {
			failures = append(failures, combineGroup(ctx, bucket, day, group))
		}
		if err := errors.Join(failures...); err != nil {
			return err
		}
	}
}

// DaysToCombine returns the days that have several small objects.
func DaysToCombine(ctx context.Context, bucket *blob.Bucket) ([]string, error) {
	small := map[string]int{}
	for object, err := range objects(ctx, bucket, &blob.ListOptions{Prefix: dayPrefix}) {
		if err != nil {
			return nil, err
		}
		if day := dayOf(object.Key); day != "" && object.Size < smallBytes {
			small[day]++
		}
	}
	maps.DeleteFunc(small, func(_ string, n int) bool { return n < 2 })
	return slices.Sorted(maps.Keys(small)), nil
}

// groups returns groups of objects to be combined, of similar sizes, so that few bytes are combined often.
func groups(small []*blob.ListObject) (groups [][]*blob.ListObject) {
	slices.SortFunc(small, func(a, b *blob.ListObject) int { return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Key, b.Key)) })
	for len(small) > 1 {
		n, bytes := 0, int64(0)
		for n < min(len(small), manySmall) && (n < 2 || bytes+small[n].Size <= groupBytes) {
			bytes += small[n].Size
			n++
		}
		groups = append(groups, small[:n])
		small = small[n:]
	}
	return groups
}

func combineGroup(ctx context.Context, bucket *blob.Bucket, day string, group []*blob.ListObject) error {
	ctx, cancel := context.WithTimeout(ctx, groupTimeout)
	defer cancel()
	digest := sha256.New()
	for _, object := range group {
		_, _ = fmt.Fprintln(digest, object.Key) // a hash returns no error
	}
	key := objectKey(day, digest.Sum(nil))
	count, err := writeCombined(ctx, bucket, key, group)
	if err != nil {
		return err
	}
	if err := verify(ctx, bucket, key, count); err != nil {
		return err
	}
	for _, object := range group {
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
	sources, newest := reader.findNewest(objects)
	reader.yieldNewest(sources, newest, func(record Record, failure error) bool {
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

func verify(ctx context.Context, bucket *blob.Bucket, key string, want int) error {
	reader, found := reader{ctx: ctx, bucket: bucket}, 0
	for _, err := range reader.lines(&source{ListObject: &blob.ListObject{Key: key}}) {
		if err != nil {
			return fmt.Errorf("verifying %s: %w", key, err)
		}
		found++
	}
	if found != want {
		return fmt.Errorf("verifying %s: %d records instead of %d", key, found, want)
	}
	return nil
}
