package testenv

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// readyTimeout is how long etcd and the API servers may take to start on a busy machine.
const readyTimeout = 3 * time.Minute

// ControlPlaneOptions say what kind of control plane to make.
type ControlPlaneOptions struct {
	// Folder takes data, keys and logs.
	Folder string
	// APIServers is how many there are. They share keys and etcd.
	APIServers int
	// QuotaBytes is etcd's space quota; zero is etcd's own default.
	QuotaBytes int64
}

// ControlPlane is an etcd with one API server or more, each a process that can be frozen, killed and
// started again. Unlike envtest's it authorizes by RBAC, and its etcd keeps the whole history.
type ControlPlane struct {
	// Etcd is the store. It does not sync to disk: it survives kill -9, not the loss of power.
	Etcd *Process
	// EtcdURL is where it answers, without TLS.
	EtcdURL string
	// APIServers are the API servers.
	APIServers []*Process
	// URLs are where they answer, in the same order.
	URLs []string
	// Token is the administrator's.
	Token string

	folder string
	client *http.Client
}

// StartControlPlane starts a control plane and waits until it answers. It has no CRDs yet.
func StartControlPlane(ctx context.Context, options ControlPlaneOptions) (*ControlPlane, error) {
	addresses, err := FreeAddresses(2 + options.APIServers)
	if err != nil {
		return nil, fmt.Errorf("finding free ports: %w", err)
	}
	c := &ControlPlane{
		EtcdURL: "http://" + addresses[0],
		folder:  options.Folder,
		client: &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // its own self-signed servers
		}},
	}
	if err := c.makeKeys(); err != nil {
		return nil, fmt.Errorf("making keys: %w", err)
	}
	if c.Etcd, err = c.etcd(addresses[1], options.QuotaBytes); err != nil {
		return nil, err
	}
	for _, address := range addresses[2:] {
		server, err := c.apiServer(address)
		if err != nil {
			return nil, err
		}
		c.APIServers = append(c.APIServers, server)
		c.URLs = append(c.URLs, "https://"+address)
	}
	if err := c.startAll(ctx); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// startAll starts etcd and then the API servers, one after the other: the first one fills the store.
func (c *ControlPlane) startAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := c.Etcd.Start(); err != nil {
		return err
	}
	if err := c.WaitEtcd(ctx); err != nil {
		return err
	}
	for i, server := range c.APIServers {
		if err := server.Start(); err != nil {
			return err
		}
		if err := c.WaitAPIServer(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// WaitEtcd waits until etcd answers.
func (c *ControlPlane) WaitEtcd(ctx context.Context) error {
	return c.wait(ctx, "etcd", c.EtcdURL+"/health?exclude=NOSPACE")
}

// WaitAPIServer waits until the API server with this number answers that it is ready.
func (c *ControlPlane) WaitAPIServer(ctx context.Context, number int) error {
	return c.wait(ctx, fmt.Sprintf("API server %d", number), c.URLs[number]+"/readyz")
}

// Stop kills all processes.
func (c *ControlPlane) Stop() {
	for _, server := range c.APIServers {
		server.Kill()
	}
	c.Etcd.Kill()
}

// DataFolder is where etcd keeps its data.
func (c *ControlPlane) DataFolder() string { return filepath.Join(c.folder, "etcd") }

func (c *ControlPlane) wait(ctx context.Context, name, url string) error {
	return Await(ctx, readyTimeout, func(ctx context.Context) error {
		if !c.answers(ctx, url) {
			return fmt.Errorf("%s, whose log is in %s, does not answer", name, c.folder)
		}
		return nil
	})
}

func (c *ControlPlane) answers(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	request.Header.Set("Authorization", "Bearer "+c.Token)
	response, err := c.client.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func (c *ControlPlane) makeKeys() error {
	if err := os.MkdirAll(c.folder, 0o700); err != nil {
		return err
	}
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	c.Token = hex.EncodeToString(secret)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return errors.Join(
		os.WriteFile(filepath.Join(c.folder, "sa.key"), encoded, 0o600),
		os.WriteFile(filepath.Join(c.folder, "tokens.csv"), []byte(c.Token+",admin,admin,system:masters\n"), 0o600),
	)
}

func (c *ControlPlane) etcd(peer string, quota int64) (*Process, error) {
	log, err := os.Create(filepath.Join(c.folder, "etcd.log"))
	if err != nil {
		return nil, err
	}
	return NewProcess(log, filepath.Join(Assets(), "etcd"),
		"--data-dir="+c.DataFolder(),
		"--listen-client-urls="+c.EtcdURL, "--advertise-client-urls="+c.EtcdURL,
		"--listen-peer-urls=http://"+peer, "--initial-advertise-peer-urls=http://"+peer,
		"--initial-cluster=default=http://"+peer,
		"--unsafe-no-fsync", "--log-level=warn",
		fmt.Sprintf("--quota-backend-bytes=%d", quota),
	), nil
}

func (c *ControlPlane) apiServer(address string) (*Process, error) {
	number := len(c.APIServers)
	log, err := os.Create(filepath.Join(c.folder, fmt.Sprintf("apiserver-%d.log", number)))
	if err != nil {
		return nil, err
	}
	key := filepath.Join(c.folder, "sa.key")
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return NewProcess(log, filepath.Join(Assets(), "kube-apiserver"),
		"--etcd-servers="+c.EtcdURL, "--etcd-compaction-interval=0",
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+port,
		"--cert-dir="+filepath.Join(c.folder, fmt.Sprintf("certs-%d", number)),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--token-auth-file="+filepath.Join(c.folder, "tokens.csv"),
		"--authorization-mode=RBAC", "--allow-privileged=true", "--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.96.0.0/24", "--disable-admission-plugins=ServiceAccount",
	), nil
}
