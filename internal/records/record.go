package records

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"gocloud.dev/blob"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// SchemaVersion is the version of Record. It changes when a field is removed or changes its meaning.
const SchemaVersion = 1

const (
	dayPrefix   = "v1/day="
	suffix      = ".ndjson.gz"
	contentType = "application/gzip"
)

// Record describes one ended episode of an Incident.
type Record struct {
	SchemaVersion   int    `json:"schemaVersion"`
	Namespace       string `json:"namespace"`
	Integration     string `json:"integration"`
	Incident        string `json:"incident"` // the name
	UID             string `json:"uid"`      // of the Incident
	DedupKey        string `json:"dedupKey"`
	ResourceVersion string `json:"resourceVersion"` // of the Incident that was read

	fold.EndedEpisode
}

// Key identifies an episode.
type Key struct {
	UID     string `json:"uid"` // of the Incident
	Episode int64  `json:"episode"`
}

// Key returns the key of the record's episode.
func (r *Record) Key() Key { return Key{r.UID, r.Number} }

// Day returns the day under which the record is stored.
func (r *Record) Day() string { return Day(r.ResolvedTime.Time) }

// Day returns the UTC day of a time, such as 2026-11-22.
func Day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// New returns the record of an episode of an Incident.
func New(incident *v1alpha1.Incident, episode fold.EndedEpisode) Record {
	return Record{
		SchemaVersion: SchemaVersion, Namespace: incident.Namespace, Integration: incident.Spec.IntegrationName,
		Incident: incident.Name, UID: string(incident.UID), DedupKey: incident.Spec.DedupKey,
		ResourceVersion: incident.ResourceVersion, EndedEpisode: episode,
	}
}

// Last returns the record of the last episode of a Resolved Incident, none of any other one. It needs no archive.
func Last(incident *v1alpha1.Incident) []Record {
	if episode, ok := fold.DescribeEpisode(&incident.Status); ok {
		return []Record{New(incident, episode)}
	}
	return nil
}

// Encode writes records as gzip-compressed NDJSON.
func Encode(w io.Writer, records []Record) error {
	e := newEncoder(w)
	for i := range records {
		if err := e.Encode(&records[i]); err != nil {
			return err
		}
	}
	return e.Close()
}

type encoder struct {
	*json.Encoder
	*gzip.Writer
}

func newEncoder(w io.Writer) encoder {
	compressed := gzip.NewWriter(w)
	e := encoder{json.NewEncoder(compressed), compressed}
	e.SetEscapeHTML(false)
	return e
}

// Write stores the records of one day as an object, and returns its key and size in bytes.
func Write(ctx context.Context, bucket *blob.Bucket, day string, records []Record) (key string, size int, err error) {
	var content bytes.Buffer
	if err := Encode(&content, records); err != nil {
		return "", 0, fmt.Errorf("encoding %d records: %w", len(records), err)
	}
	sum := sha256.Sum256(content.Bytes())
	key = objectKey(day, sum[:])
	if err := bucket.WriteAll(ctx, key, content.Bytes(), &blob.WriterOptions{ContentType: contentType}); err != nil {
		return "", 0, fmt.Errorf("writing %s: %w", key, err)
	}
	return key, content.Len(), nil
}

func objectKey(day string, digest []byte) string {
	return dayPrefix + day + "/" + hex.EncodeToString(digest[:16]) + suffix
}

// dayOf returns the day of an object, empty if the key is not one of the archive.
func dayOf(key string) string {
	rest, ok := strings.CutPrefix(key, dayPrefix)
	day, name, found := strings.Cut(rest, "/")
	if !ok || !found || !strings.HasSuffix(name, suffix) || strings.Contains(name, "/") {
		return ""
	}
	return day
}
