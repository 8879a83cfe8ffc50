//go:build slow

// Package archive is "make test-archive": it runs two managers and two archivers with a real S3 server, breaks all of them, and
// judges by the records that the archive has and by the Incidents that were deleted: every ended episode has one record, and no
// Incident is deleted before.
package archive

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"gocloud.dev/blob"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/bucket"
)

// server is the S3 server; with -short, the archive is a folder.
var server = flag.String("store", testenv.Program("tools/versitygw"), "the S3 server")

const (
	// archiveTimeout is within which an ended episode is archived, with some seconds until it is folded.
	archiveTimeout = 70 * time.Second

	// retention is that of all Incidents. When it is over, they are archived, or else the leader looks at them again after a
	// minute.
	retention = 15 * time.Second

	// deletionTimeout is how long it takes until archived Incidents are deleted.
	deletionTimeout = 2 * time.Minute

	// combineTimeout is how long an archiver takes to combine thousands of objects.
	combineTimeout = 3 * time.Minute

	// roundInterval is that of the archiver.
	roundInterval = 10 * time.Second

	bucketName      = "incidents"
	prefix          = "test/"
	accessKey       = "tocsin"
	secretKey       = "only-for-this-test"
	otherSecret     = "rotated"
	secretFlag      = "--secret"
	tenant, another = "payments", "shop"
)

// rig is everything that runs.
type rig struct {
	*testenv.Rig
	managers  []*testenv.Manager
	archivers []*testenv.Manager
	tokens    map[string]string // by namespace; the integration has the same name
	store     *testenv.Process  // nil: the archive is a folder
	url       string            // of the archive
	bucket    *blob.Bucket
	expected  map[string]int64 // alerts of the episode by the namespace and name of its Incident
	deleted   *deletions
	summary   string
	serial    atomic.Int64
}

// startRig starts everything and waits until it is ready.
func startRig(t *testing.T) *rig {
	t.Helper()
	programs, replicas := []string{testenv.Program("manager"), testenv.Program("archiver"), testenv.Program("kubectl-tocsin")}, 1
	if !testing.Short() {
		programs, replicas = append(programs, *server), 2
	}
	r := &rig{Rig: testenv.NewRig(t, programs...), tokens: map[string]string{}, expected: map[string]int64{}}
	r.startStore()
	r.fill()
	for _, namespace := range []string{tenant, another} {
		spec := v1alpha1.WebhookIntegrationSpec{
			Retention: &metav1.Duration{Duration: retention}, LateFiringWindow: &metav1.Duration{},
		}
		r.tokens[namespace] = r.Integrate(namespace, spec)
	}
	var err error
	r.deleted, err = watchDeletions(r.Context, r.Cluster)
	r.Must(err)
	for i := range replicas {
		r.managers = append(r.managers, r.manager(i, ""))
		r.archivers = append(r.archivers, r.Manager(fmt.Sprint("archiver-", i), testenv.ManagerOptions{
			Binary: testenv.Program("archiver"), Archive: r.url, Args: testenv.Elect,
		}))
	}
	r.led()
	return r
}

// led waits until one of the managers and one of the archivers lead.
func (r *rig) led() {
	r.Leader(r.managers)
	r.Leader(r.archivers)
}

// startStore starts the S3 server, with credentials in the environment of this process and its children, or makes the folder.
func (r *rig) startStore() {
	r.Must(os.MkdirAll(r.storeFolder(), 0o700))
	r.url = "file://" + r.storeFolder() + "?prefix=" + prefix
	if !testing.Short() {
		address := r.Addresses(1)[0]
		metadata := r.T.TempDir() // beside the objects: not every file system has extended attributes
		r.T.Setenv("AWS_ACCESS_KEY_ID", accessKey)
		r.T.Setenv("AWS_SECRET_ACCESS_KEY", secretKey)
		r.store = r.Process("store", "", *server, "--port="+address, "--access="+accessKey, secretFlag+"="+secretKey,
			"posix", "--sidecar="+metadata, filepath.Dir(r.storeFolder()))
		r.Start(r.store)
		r.url = fmt.Sprintf("s3://%s?region=us-east-1&endpoint=http://%s&use_path_style=true&prefix=%s", bucketName, address, prefix)
	}
	var err error
	r.bucket, err = bucket.Open(r.Context, r.url)
	r.Must(err)
	r.T.Cleanup(func() { _ = r.bucket.Close() })
	r.storeAnswers()
}

// storeFolder has the objects.
func (r *rig) storeFolder() string { return filepath.Join(r.Folder, "store", bucketName) }

func (r *rig) storeAnswers() {
	r.T.Helper()
	r.Await(testenv.WaitTimeout, func(ctx context.Context) error {
		_, _, err := r.bucket.ListPage(ctx, blob.FirstPageToken, 1, nil)
		return err
	})
}

// manager starts a manager.
func (r *rig) manager(replica int, binary string, env ...string) *testenv.Manager {
	return r.Manager(fmt.Sprint("manager-", replica), testenv.ManagerOptions{
		Binary: binary, Env: env, Args: append([]string{"--archive-required"}, testenv.Elect...),
	})
}

// metric returns the sum of the series of all archivers that match.
func (r *rig) metric(ctx context.Context, series string) (sum float64, err error) {
	for _, a := range r.archivers {
		value, _, err := testenv.Metric(ctx, a.MetricsURL, series)
		if err != nil {
			return 0, err
		}
		sum += value
	}
	return sum, nil
}

// rises returns a function that waits until a metric of the archivers is higher than now.
func (r *rig) rises(series string) (wait func()) {
	r.T.Helper()
	before, err := r.metric(r.Context, series)
	r.Must(err)
	return func() {
		r.AwaitThat(series+" does not rise", func(ctx context.Context) bool {
			now, err := r.metric(ctx, series)
			return err == nil && now > before
		})
	}
}
