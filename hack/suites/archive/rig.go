package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"

	"gocloud.dev/blob"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/archive/bucket"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	// waitTimeout is how long something that takes seconds may take on a busy machine.
	waitTimeout = 45 * time.Second

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
	options   options
	folder    string
	cluster   *testenv.Cluster
	managers  []*testenv.Manager
	archivers []*testenv.Manager
	tokens    map[string]string // by namespace; the integration has the same name
	store     *testenv.Process  // nil: the archive is a folder
	address   string            // of the store
	url       string            // of the archive
	bucket    *blob.Bucket
	expected  map[string]int64 // alerts of the episode by the namespace and name of its Incident
	deleted   *deletions
	unwatch   context.CancelFunc
	summary   string
	serial    atomic.Int64
}

// startRig starts everything and waits until it is ready. The caller closes the rig, after an error too.
func startRig(ctx context.Context, o options, folder string) (*rig, error) {
	r := &rig{options: o, folder: folder, tokens: map[string]string{}, expected: map[string]int64{}}
	fmt.Println("Starting the store, etcd, kube-apiserver, the managers and the archivers.")
	if err := r.startStore(ctx); err != nil {
		return r, err
	}
	if err := r.fill(ctx); err != nil {
		return r, err
	}
	var err error
	if r.cluster, err = testenv.StartCluster(folder); err != nil {
		return r, err
	}
	for _, namespace := range []string{tenant, another} {
		spec := v1alpha1.WebhookIntegrationSpec{Retention: &metav1.Duration{Duration: retention}}
		if r.tokens[namespace], err = r.cluster.Integrate(ctx, namespace, namespace, spec); err != nil {
			return r, err
		}
	}
	watching, unwatch := context.WithCancel(ctx)
	r.unwatch = unwatch
	if r.deleted, err = watchDeletions(watching, r.cluster); err != nil {
		return r, err
	}
	replicas := 2
	if o.short {
		replicas = 1
	}
	for i := range replicas {
		m, err := r.runManager(ctx, i, o.manager)
		if err != nil {
			return r, err
		}
		a, err := r.runProgram(ctx, fmt.Sprint("archiver-", i), testenv.ManagerOptions{Binary: o.archiver, Archive: r.url})
		if err != nil {
			return r, err
		}
		r.managers, r.archivers = append(r.managers, m), append(r.archivers, a)
	}
	return r, r.led(ctx)
}

// led waits until one of the managers and one of the archivers lead.
func (r *rig) led(ctx context.Context) error {
	_, err := testenv.Leader(ctx, waitTimeout, r.managers)
	_, other := testenv.Leader(ctx, waitTimeout, r.archivers)
	return errors.Join(err, other)
}

// startStore starts the S3 server, with credentials in the environment of this process and its children.
func (r *rig) startStore(ctx context.Context) (err error) {
	if r.options.store == "" {
		r.url = "file://" + r.storeFolder() + "?prefix=" + prefix
		if err := os.MkdirAll(r.storeFolder(), 0o700); err != nil {
			return err
		}
		r.bucket, err = bucket.Open(ctx, r.url)
		return err
	}
	free, err := testenv.FreeAddresses(1)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(r.folder, "store.log"))
	if err != nil {
		return err
	}
	r.address = free[0]
	metadata := filepath.Join(r.folder, "metadata") // beside the objects: not every file system has extended attributes
	r.store = testenv.NewProcess(log, r.options.store, "--port="+r.address, "--access="+accessKey, secretFlag+"="+secretKey,
		"posix", "--sidecar="+metadata, filepath.Dir(r.storeFolder()))
	err = errors.Join(os.MkdirAll(r.storeFolder(), 0o700), os.Mkdir(metadata, 0o700),
		os.Setenv("AWS_ACCESS_KEY_ID", accessKey), os.Setenv("AWS_SECRET_ACCESS_KEY", secretKey), r.store.Start())
	if err != nil {
		return err
	}
	r.url = fmt.Sprintf("s3://%s?region=us-east-1&endpoint=http://%s&use_path_style=true&prefix=%s", bucketName, r.address, prefix)
	if r.bucket, err = bucket.Open(ctx, r.url); err != nil {
		return err
	}
	return r.storeAnswers(ctx)
}

// storeFolder has the objects.
func (r *rig) storeFolder() string { return filepath.Join(r.folder, "store", bucketName) }

func (r *rig) storeAnswers(ctx context.Context) error {
	return testenv.Await(ctx, waitTimeout, func(ctx context.Context) error {
		_, _, err := r.bucket.ListPage(ctx, blob.FirstPageToken, 1, nil)
		return err
	})
}

// runManager starts a manager and waits until it is ready.
func (r *rig) runManager(ctx context.Context, replica int, binary string, env ...string) (*testenv.Manager, error) {
	return r.runProgram(ctx, fmt.Sprint("manager-", replica), testenv.ManagerOptions{
		Binary: binary, Env: env, Args: []string{"--shutdown-delay=0s", "--archive-required"},
	})
}

func (r *rig) runProgram(ctx context.Context, name string, o testenv.ManagerOptions) (_ *testenv.Manager, err error) {
	o.Log, err = os.OpenFile(filepath.Join(r.folder, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	o.Args = append(o.Args, "--leader-elect", "--leader-election-namespace=default")
	return r.cluster.RunManager(ctx, o)
}

// metric returns the sum of the series of all archivers whose text matches.
func (r *rig) metric(ctx context.Context, series string) (sum float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	for _, a := range r.archivers {
		text, err := testenv.Call(ctx, http.MethodGet, a.MetricsURL, "")
		if err != nil {
			return 0, err
		}
		for _, match := range regexp.MustCompile(`(?m)^`+series+` (\S+)$`).FindAllStringSubmatch(text, -1) {
			value, err := strconv.ParseFloat(match[1], 64)
			if err != nil {
				return 0, err
			}
			sum += value
		}
	}
	return sum, nil
}

// close ends everything that was started.
func (r *rig) close() error {
	var err error
	if r.unwatch != nil {
		r.unwatch() // or the API server would wait for the end of the watch
	}
	if r.cluster != nil {
		err = r.cluster.Stop()
	}
	if r.store != nil {
		r.store.Kill()
	}
	if r.bucket != nil {
		err = errors.Join(err, r.bucket.Close())
	}
	return err
}
