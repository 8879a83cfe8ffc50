package bucket_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/internal/bucket"
)

func TestCheck(t *testing.T) {
	for _, url := range []string{
		"s3://bucket", "s3://bucket?region=eu-central-1&prefix=tocsin/", "gs://bucket", "azblob://container",
		"file:///var/lib/archive",
	} {
		NewWithT(t).Expect(bucket.Check(url)).To(Succeed(), url)
	}
	for _, url := range []string{
		"", "bucket", "s3://", "s3://bucket/folder", "s3://key:secret@bucket", "mem://", "http://host/x", "file://folder",
		"file:///", "s3://b?prefix=p", "s3://b#x", "s3://b?a=%zz", "gs:bucket", "://",
	} {
		err := bucket.Check(url)
		NewWithT(t).Expect(err).To(HaveOccurred(), url)
		NewWithT(t).Expect(err.Error()).NotTo(ContainSubstring("secret"))
	}
}

func TestABucketOfS3NeedsARegion(t *testing.T) {
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", "/nonexistent")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
	g := NewWithT(t)
	_, err := bucket.Open(t.Context(), "s3://nope")
	g.Expect(err).To(MatchError(ContainSubstring("add ?region=REGION")))
	opened, err := bucket.Open(t.Context(), "s3://nope?region=eu-central-1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(opened.Close()).To(Succeed())
}

func TestAFolderNeedsNoOtherVolumeAndHasNothingButObjects(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	t.Setenv("TMPDIR", "/nonexistent")
	opened, err := bucket.Open(t.Context(), "file://"+folder+"?prefix=tocsin/")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = opened.Close() }()
	const key = "v1/day=2026-11-22/0.ndjson.gz"
	g.Expect(opened.WriteAll(t.Context(), key, []byte("x"), nil)).To(Succeed())
	g.Expect(folder + "/tocsin/" + key).To(BeARegularFile())
	g.Expect(folder + "/tocsin/" + key + ".attrs").NotTo(BeAnExistingFile())
}
