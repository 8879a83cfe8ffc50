package archive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gocloud.dev/blob"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/archive/records"
)

// term is the archiving of one leader's term. All memory begins anew.
type term struct {
	archiver *Archiver
	live     client.Reader
	synced   func() bool // whether the existing Incidents were seen
	swept    atomic.Bool // the Resolved ones
	limiter  flowcontrol.RateLimiter
	health   health
	book     *book
	reached  bool // the store has answered in this step

	mu       sync.Mutex
	bucket   *blob.Bucket    // nil until it has answered
	written  map[string]bool // days of objects that were written and not combined since
	combined time.Time       // when days were last combined
}

func newTerm(a *Archiver, live client.Reader) *term {
	return &term{
		archiver: a, live: live, book: newBook(), written: map[string]bool{},
		limiter: flowcontrol.NewTokenBucketRateLimiter(readRate, readBurst),
	}
}

func (t *term) changed(incident *v1alpha1.Incident, initial bool) {
	t.book.see(incident, initial, time.Now())
}

// Start implements manager.Runnable: it archives until ctx ends. A failure of the store never ends the term.
func (t *term) Start(ctx context.Context) error {
	for !t.synced() && ctx.Err() == nil {
		sleep(ctx, minRetry)
	}
	var others sync.WaitGroup // of a step, since each may take long
	for _, repeat := range []func(){func() { t.combine(ctx) }, t.report} {
		others.Go(func() {
			for ctx.Err() == nil {
				repeat()
				sleep(ctx, flushInterval)
			}
		})
	}
	defer func() {
		others.Wait()
		if bucket := t.openedBucket(); bucket != nil {
			_ = bucket.Close()
		}
		waitingIncidents.Set(0) // of another replica from now on
		oldestWaiting.Set(0)
	}()
	lastSuccess.SetToCurrentTime()
	retry := minRetry
	for ctx.Err() == nil {
		wait := flushInterval
		operation, err := t.step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			t.fail(operation, err)
			wait, retry = retry, min(2*retry, maxRetry)
		case t.reached:
			if t.health.succeed() {
				t.archiver.log.Info("Archive is available")
			}
			lastSuccess.SetToCurrentTime()
			retry = minRetry
		}
		sleep(ctx, wait)
	}
	return nil
}

// sleep waits, at most until ctx ends.
func sleep(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}

// fail reports a failure of a step.
func (t *term) fail(operation string, err error) {
	failuresTotal.WithLabelValues(operation).Inc()
	switch {
	case operation == operationIncident:
		t.archiver.log.Error(err, "Incidents cannot be read to archive them")
	case t.health.fail(time.Now()):
		t.archiver.log.Error(err, "Archive is unavailable; no Incident is deleted until it is back", "operation", operation)
	}
}

// report sets the gauges.
func (t *term) report() {
	waiting, oldest := t.book.load(time.Now())
	waitingIncidents.Set(float64(waiting))
	oldestWaiting.Set(oldest.Seconds())
}

// step brings the archive up to date. It returns the operation that failed.
func (t *term) step(ctx context.Context) (operation string, err error) {
	t.reached = false
	if err := t.openBucket(ctx); err != nil {
		return operationRead, err
	}
	for _, day := range t.book.uncheckedDays() {
		if err := t.lookUp(ctx, day); err != nil {
			return operationRead, err
		}
		if operation, err := t.flushAll(ctx); err != nil { // there may be very many days
			return operation, err
		}
	}
	return t.flushAll(ctx)
}

// flushAll archives the Incidents that wait.
func (t *term) flushAll(ctx context.Context) (operation string, err error) {
	for more := true; more && err == nil; {
		more, operation, err = t.flush(ctx)
	}
	return operation, err
}

func (t *term) openedBucket() *blob.Bucket {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bucket
}

// openBucket opens the bucket unless it is open. It makes sure that the store answers, also after a failure: what was to be
// written then may have been deleted by a user since.
func (t *term) openBucket(ctx context.Context) error {
	bucket := t.openedBucket()
	if failing, _ := t.health.failing(time.Now()); bucket != nil && failing == 0 {
		return nil
	}
	opened := bucket
	if opened == nil {
		var err error
		if opened, err = t.archiver.open(ctx); err != nil { // some drivers keep the context, to renew their credentials
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if _, _, err := opened.ListPage(ctx, blob.FirstPageToken, 1, nil); err != nil {
		err = fmt.Errorf("listing the archive: %w", err)
		if bucket == nil {
			err = errors.Join(err, opened.Close())
		}
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bucket, t.reached = opened, true
	return nil
}

// lookUp reads a day of the archive, and has the episodes that it lacks archived. A corrupt object counts as missing.
func (t *term) lookUp(ctx context.Context, day string) error {
	ctx, cancel := context.WithTimeout(ctx, maintenanceTimeout)
	defer cancel()
	unreadable, err := records.Scan(ctx, t.openedBucket(), day, func(uid string, number int64, digest string) {
		t.book.found(day, types.UID(uid), version{number, digest})
	})
	if err != nil {
		return err
	}
	if unreadable != nil {
		failuresTotal.WithLabelValues(operationRead).Inc()
		t.archiver.log.Error(unreadable, "Objects of the archive cannot be read; their records count as missing", "day", day)
	}
	t.reached = true
	t.book.checked(day, time.Now())
	return nil
}

// batch are Incidents that were read, and their records by day.
type batch struct {
	tasks    []task
	deferred []task // to be read again for the next batch
	records  map[string][]records.Record
	bytes    int // of the content
	count    int // of the records
	// days are those of each namespace, daysPerNamespace at most, and exhausted are the namespaces with more of them.
	days      map[string]map[string]bool
	exhausted map[string]bool
}

func newBatch() *batch {
	return &batch{
		records: map[string][]records.Record{}, days: map[string]map[string]bool{}, exhausted: map[string]bool{},
	}
}

func (b *batch) full() bool { return b.bytes >= batchBytes || b.count >= batchRecords }

// add adds a record unless its namespace has records of too many other days already.
func (b *batch) add(record *records.Record) bool {
	day, days := record.Day(), b.days[record.Namespace]
	if days == nil {
		days = map[string]bool{}
		b.days[record.Namespace] = days
	}
	if !days[day] && len(days) == daysPerNamespace {
		b.exhausted[record.Namespace] = true
		return false
	}
	days[day] = true
	b.records[day] = append(b.records[day], *record)
	b.bytes += record.Alert.EncodedSize()
	b.count++
	return true
}

// flush archives up to batchRecords Incidents. more says that others may wait.
func (t *term) flush(ctx context.Context) (more bool, operation string, err error) {
	tasks := t.book.next(batchRecords)
	for len(tasks) > 0 {
		b := newBatch()
		for len(tasks) > 0 && !b.full() && err == nil {
			err = t.read(ctx, tasks[0], b)
			tasks = tasks[1:]
		}
		operation = operationIncident
		if failure := t.write(ctx, b); failure != nil {
			operation, err = operationWrite, failure
			t.book.again(b.tasks)
		}
		if err != nil {
			t.book.again(tasks)
			t.book.again(b.deferred)
			return false, operation, err
		}
		t.book.again(b.deferred)
		more = true
	}
	return more, "", nil
}

// read adds the records of an Incident that are not archived. After an error the Incident is read again, after the others.
func (t *term) read(ctx context.Context, next task, into *batch) error {
	name := next.name
	if into.exhausted[name.Namespace] {
		into.deferred = append(into.deferred, next)
		return nil
	}
	var incident v1alpha1.Incident
	switch err := t.get(ctx, name, &incident); {
	case apierrors.IsNotFound(err): // deleted by a user
		into.tasks = append(into.tasks, next)
		return nil
	case err != nil:
		into.deferred = append(into.deferred, next)
		return fmt.Errorf("reading the Incident %s: %w", name, err)
	}
	found, invalid := records.Of(&incident)
	if len(invalid) > 0 {
		failuresTotal.WithLabelValues(operationDecode).Add(float64(len(invalid)))
		t.archiver.log.Error(errors.Join(invalid...), "Ended episodes cannot be archived", "namespace", name.Namespace,
			"incident", name.Name)
		t.book.mark(incident.UID, invalidVersions(&incident, found)...)
	}
	complete := true
	for i := range found {
		record := &found[i]
		if !t.book.archived(incident.UID, record.Number, record.Digest) {
			complete = into.add(record) && complete
		}
	}
	if complete {
		into.tasks = append(into.tasks, next)
	} else {
		into.deferred = append(into.deferred, next)
	}
	return nil
}

// get reads an Incident at the limited rate.
func (t *term) get(ctx context.Context, name types.NamespacedName, into *v1alpha1.Incident) error {
	if err := t.limiter.Wait(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return t.live.Get(ctx, name, into)
}

// invalidVersions are the ended episodes of an Incident that have no record: they never will, so nothing waits for them.
func invalidVersions(incident *v1alpha1.Incident, found []records.Record) []version {
	var invalid []version
	for i := range incident.Status.UnarchivedEpisodes {
		e := &incident.Status.UnarchivedEpisodes[i]
		valid := false
		for j := range found {
			valid = valid || found[j].Number == e.Number
		}
		if !valid {
			invalid = append(invalid, version{e.Number, e.Digest})
		}
	}
	return invalid
}

// write stores the records of a batch and marks them.
func (t *term) write(ctx context.Context, b *batch) error {
	for day, ofDay := range b.records {
		size, err := t.writeDay(ctx, day, ofDay)
		if err != nil {
			return err
		}
		for i := range ofDay {
			t.book.mark(types.UID(ofDay[i].UID), version{ofDay[i].Number, ofDay[i].Digest})
		}
		t.mu.Lock()
		t.reached, t.written[day] = true, true
		t.mu.Unlock()
		recordsTotal.Add(float64(len(ofDay)))
		bytesTotal.Add(float64(size))
	}
	t.book.done(b.tasks)
	return nil
}

func (t *term) writeDay(ctx context.Context, day string, ofDay []records.Record) (size int, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, size, err = records.Write(ctx, t.openedBucket(), day, ofDay)
	return size, err
}

// combine combines the small objects of the last days, and of those that were written to, once in a while. It fails without
// consequences: readers understand small objects as well.
func (t *term) combine(ctx context.Context) {
	failures := 0
	for _, day := range t.daysToCombine() {
		if failures < combineFailures {
			err := t.combineDay(ctx, day.name, day.over)
			if err == nil {
				continue
			}
			if ctx.Err() != nil {
				return
			}
			failures++
			failuresTotal.WithLabelValues(operationCombine).Inc()
			t.archiver.log.Error(err, "Objects of the archive cannot be combined", "day", day.name)
		}
		t.mu.Lock()
		t.written[day.name] = true // for the next time
		t.mu.Unlock()
	}
}

// archiveDay is a day of the archive. It is over when no episode of it can end any more.
type archiveDay struct {
	name string
	over bool
}

// daysToCombine returns the days to look through; none if that was done lately.
func (t *term) daysToCombine() []archiveDay {
	now, ok := t.archiver.clock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !ok || t.bucket == nil || time.Since(t.combined) < combineInterval {
		return nil
	}
	t.combined = time.Now()
	for i := range combineDays + 1 {
		t.written[records.Day(now.AddDate(0, 0, -i))] = true
	}
	days := make([]archiveDay, 0, len(t.written))
	for name := range t.written {
		day := archiveDay{name, name < records.Day(now.Add(-combineDelay))}
		if days = append(days, day); day.over {
			delete(t.written, name)
		}
	}
	return days
}

func (t *term) combineDay(ctx context.Context, day string, over bool) error {
	ctx, cancel := context.WithTimeout(ctx, maintenanceTimeout)
	defer cancel()
	return records.Combine(ctx, t.openedBucket(), day, over)
}

// health is whether the store answers.
type health struct {
	mu        sync.Mutex
	since     time.Time // of the failure; zero if there is none
	succeeded bool
}

// fail notes a failure and reports whether it is the first.
func (h *health) fail(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.since.IsZero()
	if first {
		h.since = now
	}
	return first
}

// succeed notes a success and reports whether a failure has ended.
func (h *health) succeed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	failed := !h.since.IsZero()
	h.since, h.succeeded = time.Time{}, true
	return failed
}

// failing returns for how long the store has failed, and whether it ever answered.
func (h *health) failing(now time.Time) (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		return 0, h.succeeded
	}
	return max(now.Sub(h.since), time.Nanosecond), h.succeeded
}
