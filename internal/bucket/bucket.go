// Package bucket opens the bucket of an archive by its URL. It has the drivers of all providers, which are large.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // azblob://
	_ "gocloud.dev/blob/fileblob"  // file://
	_ "gocloud.dev/blob/gcsblob"   // gs://
	_ "gocloud.dev/blob/s3blob"    // s3://
)

// Check returns an error if the text is not the URL of an archive, such as s3://bucket?region=eu-central-1&prefix=tocsin/,
// gs://bucket, azblob://container or file:///var/lib/archive. It calls no server.
func Check(text string) error {
	_, err := parse(text)
	return err
}

func parse(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("not a URL") // the error quotes it, and somebody may have put a password there
	}
	query, err := url.ParseQuery(u.RawQuery)
	switch {
	case u.User != nil:
		return nil, errors.New("the URL must not have credentials: they come from the environment or from mounted files")
	case err != nil:
		return nil, errors.New("the query of the URL is invalid")
	case u.Fragment != "":
		return nil, errors.New("the URL must not have a fragment")
	}
	switch u.Scheme {
	case "s3", "gs", "azblob":
		if u.Host == "" || strings.Trim(u.Path, "/") != "" {
			return nil, fmt.Errorf("want %s://BUCKET, and ?prefix=FOLDER/ for a folder in it", u.Scheme)
		}
		// Otherwise the SDK logs a warning of each object without a checksum; gzip has one.
		const validation = "response_checksum_validation"
		if u.Scheme == "s3" && !query.Has(validation) {
			query.Set(validation, "when_required")
		}
	case "file":
		if u.Host != "" || !strings.HasPrefix(u.Path, "/") || u.Path == "/" {
			return nil, errors.New("want file:///FOLDER")
		}
		// Temporary files beside the objects: a rename from another volume fails, and the root file system is read-only.
		query.Set("no_tmp_dir", "true")
		query.Set("metadata", "skip")
	default:
		return nil, errors.New("want a URL that begins with s3://, gs://, azblob:// or file:///")
	}
	if !strings.HasSuffix("/"+query.Get("prefix"), "/") { // none is fine
		return nil, errors.New("the prefix must end in a slash")
	}
	u.RawQuery = query.Encode()
	return u, nil
}

// Open opens the bucket of a URL that Check accepts. Credentials come from the environment, or from the files and metadata
// servers that it names, as each provider's tools find them. The bucket may not be reachable.
func Open(ctx context.Context, text string) (*blob.Bucket, error) {
	u, err := parse(text)
	if err != nil {
		return nil, err
	}
	bucket, err := blob.OpenBucket(ctx, u.String())
	if err != nil {
		return nil, fmt.Errorf("opening the archive: %w", err)
	}
	// Without one, each request fails, and the SDK's error does not tell what to do.
	if client := (*s3.Client)(nil); bucket.As(&client) && client.Options().Region == "" {
		return nil, errors.Join(errors.New("opening the archive: no region: add ?region=REGION to the URL, or set AWS_REGION"),
			bucket.Close())
	}
	return bucket, nil
}
