package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"gocloud.dev/blob"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/records"
)

// batch are records by day, and the notes to be written once they are stored.
type batch struct {
	records   map[string][]records.Record
	notes     []note
	bytes     int                         // of the content
	count     int                         // of the records
	days      map[string]sets.Set[string] // of the records of each namespace, daysPerNamespace at most
	exhausted sets.Set[string]            // the namespaces with more of them
}

// note says that an Incident's episodes are archived.
type note struct {
	incident metav1.ObjectMeta // as it was read
	newest   v1alpha1.UnarchivedEpisode
	all      bool // that it had then
}

func newBatch() *batch {
	return &batch{records: map[string][]records.Record{}, days: map[string]sets.Set[string]{}, exhausted: sets.New[string]()}
}

func (b *batch) isFull() bool { return b.bytes >= batchBytes || b.count >= batchRecords }

// add adds a record unless its namespace has records of too many other days already.
func (b *batch) add(record *records.Record) bool {
	day, days := record.Day(), b.days[record.Namespace]
	if !days.Has(day) && len(days) == daysPerNamespace {
		b.exhausted.Insert(record.Namespace)
		return false
	}
	b.days[record.Namespace] = sets.New(day).Union(days)
	b.records[day] = append(b.records[day], *record)
	b.bytes += alertcontent.Size(&record.Alert)
	b.count++
	return true
}

// read adds the records of an Incident that are not archived, oldest first, as far as there is place for them.
func (a *archiver) read(ctx context.Context, name client.ObjectKey, into *batch) (hasPlace bool, err error) {
	if into.exhausted.Has(name.Namespace) {
		return false, nil
	}
	if err := a.limiter.Wait(ctx); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var incident v1alpha1.Incident
	if err := a.live.Get(ctx, name, &incident); err != nil {
		if apierrors.IsNotFound(err) { // deleted by a user
			return true, nil
		}
		return false, fmt.Errorf("reading the Incident %s: %w", name, err)
	}
	if noted := incident.Status.Archive; noted == nil || noted.State != v1alpha1.ArchiveWaiting { // the cache does not show it yet
		return true, nil
	}
	found, invalid := records.Of(&incident)
	if len(invalid) > 0 { // they never will have records, so nothing waits for them
		failuresTotal.WithLabelValues(operationDecode).Add(float64(len(invalid)))
		a.log.Error(errors.Join(invalid...), "Ended episodes cannot be archived", "namespace", name.Namespace, "incident", name.Name)
	}
	done := note{incident: incident.ObjectMeta, all: true}
	for _, episode := range fold.EndedEpisodes(&incident.Status) {
		at := slices.IndexFunc(found, func(r records.Record) bool { return r.Number == episode.Number })
		if at >= 0 && !fold.InArchive(&incident.Status, &episode) && !into.add(&found[at]) {
			done.all = false
			break
		}
		done.newest = episode
	}
	if done.all || done.newest.Number > 0 {
		into.notes = append(into.notes, done)
	}
	return done.all, nil
}

func (a *archiver) write(ctx context.Context, bucket *blob.Bucket, b *batch) error {
	for day, ofDay := range b.records {
		writing, cancel := context.WithTimeout(ctx, writeTimeout)
		_, size, err := records.Write(writing, bucket, day, ofDay)
		cancel()
		if err != nil {
			return err
		}
		a.answered = true
		recordsTotal.Add(float64(len(ofDay)))
		bytesTotal.Add(float64(size))
	}
	return nil
}

// noteAll writes notes, and returns the first error. An Incident whose note fails waits further.
func (a *archiver) noteAll(ctx context.Context, notes []note) error {
	var writers errgroup.Group
	writers.SetLimit(notesAtOnce)
	for _, next := range notes {
		writers.Go(func() error { return a.note(ctx, next) })
	}
	return writers.Wait()
}

// note notes in an Incident what is archived: that it does not wait any more only if it has not changed since it was read.
func (a *archiver) note(ctx context.Context, done note) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := a.patch(ctx, &done)
	if done.all && apierrors.IsConflict(err) {
		done.all = false
		err = a.patch(ctx, &done)
	}
	// It was deleted, or another one of its name is there, or it changes too fast.
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return fmt.Errorf("noting that the Incident %s/%s is archived: %w", done.incident.Namespace, done.incident.Name, err)
}

func (a *archiver) patch(ctx context.Context, done *note) error {
	archive := map[string]any{"state": v1alpha1.ArchiveWaiting}
	metadata, status := map[string]any{"uid": done.incident.UID}, map[string]any{"archive": archive}
	if done.newest.Number > 0 {
		archive["episode"], archive["digest"] = fold.LastCounted(&done.newest), done.newest.Digest
	}
	if done.all {
		archive["state"], status["unarchivedEpisodes"] = v1alpha1.ArchiveComplete, nil
		metadata["resourceVersion"] = done.incident.ResourceVersion
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata, "status": status})
	if err != nil {
		return err
	}
	incident := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: done.incident.Namespace, Name: done.incident.Name,
	}}
	incident.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Incident"))
	return a.live.Status().Patch(ctx, incident, client.RawPatch(types.MergePatchType, body), client.FieldOwner("tocsin-archiver"))
}
