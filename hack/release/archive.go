package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// entry is one file of an archive.
type entry struct {
	name    string // with slashes
	mode    fs.FileMode
	content []byte
}

// find returns the entry with this name.
func find(entries []entry, name string) (*entry, error) {
	for i := range entries {
		if entries[i].name == name {
			return &entries[i], nil
		}
	}
	return nil, fmt.Errorf("there is no %s", name)
}

// folderEntries returns the files below the folder, with their names below prefix. On disk, the modes depend on who made it.
func folderEntries(folder, prefix string) ([]entry, error) {
	var entries []entry
	files := os.DirFS(folder)
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		entries = append(entries, entry{path.Join(prefix, name), 0o644, content})
		return err
	})
	return entries, err
}

// sorted returns the entries in the order of their names, so that an archive does not depend on the order of a folder.
func sorted(entries []entry) []entry {
	return slices.SortedFunc(slices.Values(entries), func(a, b entry) int { return strings.Compare(a.name, b.name) })
}

// writeTar writes an archive that depends on nothing but the entries and the time.
func writeTar(w io.Writer, entries []entry, modified time.Time) error {
	archive := tar.NewWriter(w)
	for _, e := range sorted(entries) {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: e.name, Mode: int64(e.mode.Perm()), Size: int64(len(e.content)),
			ModTime: modified.UTC().Truncate(time.Second), Format: tar.FormatUSTAR,
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(e.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

// gzipped returns a gzipped tar archive of the entries.
func gzipped(entries []entry, modified time.Time) ([]byte, error) {
	var packed bytes.Buffer
	compressor := gzip.NewWriter(&packed)
	if err := writeTar(compressor, entries, modified); err != nil {
		return nil, err
	}
	if err := compressor.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// zipped returns a zip archive of the entries.
func zipped(entries []entry, modified time.Time) ([]byte, error) {
	var packed bytes.Buffer
	archive := zip.NewWriter(&packed)
	for _, e := range sorted(entries) {
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: modified.UTC().Truncate(time.Second)}
		header.SetMode(e.mode)
		w, err := archive.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// unpack returns the files of an archive, by its name: a .zip, a gzipped tar or a tar.
func unpack(file string) ([]entry, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	reader := bytes.NewReader(content)
	switch path.Ext(file) {
	case ".tar":
		return untar(reader)
	case ".zip":
		return unzip(reader)
	}
	decompressor, err := gzip.NewReader(reader)
	if err != nil {
		return nil, fmt.Errorf("unpacking %s: %w", file, err)
	}
	return untar(decompressor)
}

func untar(reader io.Reader) ([]entry, error) {
	var entries []entry
	for archive := tar.NewReader(reader); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{header.Name, header.FileInfo().Mode(), content})
	}
}

func unzip(reader *bytes.Reader) ([]entry, error) {
	archive, err := zip.NewReader(reader, reader.Size())
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, file := range archive.File {
		content, err := fs.ReadFile(archive, file.Name)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{file.Name, file.Mode(), content})
	}
	return entries, nil
}

// unpackTo writes the entries below the folder.
func unpackTo(folder string, entries []entry) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for _, e := range entries {
		if err := root.MkdirAll(path.Dir(e.name), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(e.name, e.content, e.mode.Perm()); err != nil {
			return err
		}
	}
	return nil
}
