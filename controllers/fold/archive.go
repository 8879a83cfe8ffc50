package fold

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const (
	// maxUnarchivedBytes bounds the packed episodes of an Incident together, so that it stays below 256 KiB.
	maxUnarchivedBytes = 16 << 10

	// maxEpisodeBytes bounds an unpacked episode, so that a small object made by hand cannot expand to gigabytes.
	maxEpisodeBytes = 1 << 20
)

// EndedEpisodes returns the ended episodes that an Incident still describes, without their records. It needs no content of the
// Incident.
func EndedEpisodes(status *v1alpha1.IncidentStatus) []v1alpha1.UnarchivedEpisode {
	episodes := slices.Clone(status.UnarchivedEpisodes)
	for i := range episodes {
		episodes[i].Packed = "" // it is large, and the archiver remembers some of the episodes
	}
	if status.State == v1alpha1.IncidentResolved && status.Episode != nil && isSet(status.ResolvedTime) {
		episodes = append(episodes, v1alpha1.UnarchivedEpisode{
			Number: status.Episode.Number, Digest: status.Ledger.Digest, ResolvedTime: *status.ResolvedTime,
		})
	}
	return episodes
}

// IsArchived reports whether the archive has all ended episodes that an Incident still describes, as its archiver has noted.
func IsArchived(status *v1alpha1.IncidentStatus) bool {
	return !slices.ContainsFunc(EndedEpisodes(status), func(e v1alpha1.UnarchivedEpisode) bool {
		return !InArchive(status, &e)
	})
}

// InArchive reports whether the archive has an ended episode of an Incident, in the version with its digest, and those that it
// counts. Of the last one of these there may be a record as well: it was written before its episode had no space.
func InArchive(status *v1alpha1.IncidentStatus, e *v1alpha1.UnarchivedEpisode) bool {
	noted, last := status.Archive, LastCounted(e)
	return noted != nil && (last < noted.Episode || last == noted.Episode && e.Digest == noted.Digest)
}

// LastCounted returns the number of the newest episode that an ended one counts: its own if it counts no other, or so many that
// no replica has written it.
func LastCounted(e *v1alpha1.UnarchivedEpisode) int64 {
	return max(e.Number, e.Number+e.OmittedEpisodes)
}

// archiveRule keeps ended episodes in the status until they are archived.
type archiveRule struct{ noRule }

// begin removes the episodes that are archived from the status to be written. That alone is no reason to write it.
func (archiveRule) begin(f *folding) {
	status := f.status
	status.UnarchivedEpisodes = slices.DeleteFunc(status.UnarchivedEpisodes, func(e v1alpha1.UnarchivedEpisode) bool {
		return !f.in.ArchiveRequired || InArchive(status, &e)
	})
	if len(status.UnarchivedEpisodes) == 0 {
		status.UnarchivedEpisodes = nil
	}
}

// finish says in the status whether an ended episode waits for the archiver, which looks for those that do.
func (archiveRule) finish(f *folding, _ stateBefore) {
	state := v1alpha1.ArchiveComplete
	if f.in.ArchiveRequired && !IsArchived(f.status) {
		state = v1alpha1.ArchiveWaiting
	}
	if f.status.Archive == nil {
		if state == v1alpha1.ArchiveComplete {
			return
		}
		f.status.Archive = &v1alpha1.ArchiveStatus{}
	}
	f.plan.Write = f.plan.Write || state == v1alpha1.ArchiveWaiting && f.status.Archive.State != state
	f.status.Archive.State = state
}

// opens keeps the last episode, which the next one is about to replace, in the status until it is archived. If there
// is no space for all of it, its content is left out. If there is none at all, the episode is counted in the one before.
func (archiveRule) opens(f *folding) {
	status := f.status
	episode, ok := DescribeEpisode(status)
	if !ok || !f.in.ArchiveRequired {
		return
	}
	episode.Digest = f.ledger.digest.String()
	if InArchive(status, &v1alpha1.UnarchivedEpisode{Number: episode.Number, Digest: episode.Digest}) {
		return
	}
	waiting := status.UnarchivedEpisodes
	space := maxUnarchivedBytes
	for i := range waiting {
		space -= len(waiting[i].Packed)
	}
	if len(waiting) < v1alpha1.MaxUnarchivedEpisodes { // packing costs time
		if packed, ok := episode.pack(space); ok {
			status.UnarchivedEpisodes = append(status.UnarchivedEpisodes, v1alpha1.UnarchivedEpisode{
				Number: episode.Number, ResolvedTime: episode.ResolvedTime, Digest: episode.Digest, Packed: packed,
			})
			return
		}
	}
	f.plan.Omitted++
	if len(waiting) == 0 {
		return
	}
	last := &waiting[len(waiting)-1]
	last.Digest = episode.Digest // another version, to be archived again
	last.OmittedEpisodes++
	last.OmittedAlerts += episode.AlertCount
	last.OmittedResolvedTime = &episode.ResolvedTime
}

// pack encodes the episode in at most so many bytes, without its content if that is too large.
func (e *EndedEpisode) pack(space int) (string, bool) {
	packed := packEpisode(e)
	if len(packed) > space {
		e.ContentOmitted, e.Timeline = true, nil
		e.Alert = v1alpha1.AlertContent{
			Title: e.Alert.Title, Severity: e.Alert.Severity, Type: e.Alert.Type, Hostname: e.Alert.Hostname,
		}
		packed = packEpisode(e)
	}
	return packed, packed != "" && len(packed) <= space
}

// packEpisode returns the base64 of the gzip-compressed JSON; empty if the content is no valid JSON.
func packEpisode(e *EndedEpisode) string {
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	if err := errors.Join(json.NewEncoder(w).Encode(e), w.Close()); err != nil {
		return ""
	}
	return base64.StdEncoding.EncodeToString(compressed.Bytes())
}

// UnpackEpisode returns the description of an episode that waits in a status.
func UnpackEpisode(packed *v1alpha1.UnarchivedEpisode) (EndedEpisode, error) {
	var e EndedEpisode
	compressed, err := base64.StdEncoding.DecodeString(packed.Packed)
	if err != nil {
		return e, errors.New("the packed episode is not base64")
	}
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return e, fmt.Errorf("decompressing the packed episode: %w", err)
	}
	if err := json.NewDecoder(io.LimitReader(r, maxEpisodeBytes)).Decode(&e); err != nil {
		return e, errors.New("the packed episode is not JSON of an episode") // the decoder's error may quote a value
	}
	e.Number, e.ResolvedTime, e.Digest = packed.Number, packed.ResolvedTime, packed.Digest
	if packed.OmittedEpisodes > 0 {
		e.Omitted = &OmittedEpisodes{packed.OmittedEpisodes, packed.OmittedAlerts, valueOf(packed.OmittedResolvedTime)}
	}
	return e, nil
}
