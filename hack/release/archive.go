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
	"maps"
	"os"
	"path"
	"slices"
	"testing/fstest"
	"time"
)

// find returns the file with this name.
func find(files fstest.MapFS, name string) (*fstest.MapFile, error) {
	if file, found := files[name]; found {
		return file, nil
	}
	return nil, fmt.Errorf("there is no %s", name)
}

// collect returns the files of a tree, with their names below prefix. On disk, the modes depend on who made it.
func collect(tree fs.FS, prefix string) (fstest.MapFS, error) {
	files := fstest.MapFS{}
	return files, fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(tree, name)
		files[path.Join(prefix, name)] = &fstest.MapFile{Mode: 0o644, Data: content}
		return err
	})
}

// tarred returns an archive that depends on nothing but the files and the time.
func tarred(files fstest.MapFS, modified time.Time) ([]byte, error) {
	var packed bytes.Buffer
	archive := tar.NewWriter(&packed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := files[name]
		err := archive.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: name, Mode: int64(file.Mode.Perm()), Size: int64(len(file.Data)),
			ModTime: modified.UTC().Truncate(time.Second), Format: tar.FormatUSTAR,
		})
		if err != nil {
			return nil, err
		}
		if _, err := archive.Write(file.Data); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return packed.Bytes(), err
}

// gzipped returns a gzipped tar archive of the files.
func gzipped(files fstest.MapFS, modified time.Time) ([]byte, error) {
	content, err := tarred(files, modified)
	var packed bytes.Buffer
	compressor := gzip.NewWriter(&packed)
	_, writeErr := compressor.Write(content)
	err = errors.Join(err, writeErr, compressor.Close())
	return packed.Bytes(), err
}

// zipped returns a zip archive of the files.
func zipped(files fstest.MapFS, modified time.Time) ([]byte, error) {
	for _, file := range files {
		file.ModTime = modified.UTC().Truncate(time.Second)
	}
	var packed bytes.Buffer
	archive := zip.NewWriter(&packed)
	err := errors.Join(archive.AddFS(files), archive.Close())
	return packed.Bytes(), err
}

// unpack returns the files of an archive, by its name: a .zip, a gzipped tar or a tar.
func unpack(name string) (fstest.MapFS, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	reader := bytes.NewReader(content)
	switch path.Ext(name) {
	case ".tar":
		return untar(reader)
	case ".zip":
		archive, err := zip.NewReader(reader, reader.Size())
		if err != nil {
			return nil, err
		}
		files, err := collect(archive, "")
		for _, header := range archive.File {
			if file := files[header.Name]; file != nil {
				file.Mode = header.Mode()
			}
		}
		return files, err
	}
	decompressor, err := gzip.NewReader(reader)
	if err != nil {
		return nil, fmt.Errorf("unpacking %s: %w", name, err)
	}
	return untar(decompressor)
}

func untar(reader io.Reader) (fstest.MapFS, error) {
	files := fstest.MapFS{}
	for archive := tar.NewReader(reader); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		files[header.Name] = &fstest.MapFile{Mode: header.FileInfo().Mode(), Data: content}
	}
}
