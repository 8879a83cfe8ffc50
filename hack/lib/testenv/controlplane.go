package testenv

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

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
}

// StartControlPlane starts a control plane and waits until it answers. It has no CRDs yet.
func StartControlPlane(ctx context.Context, options ControlPlaneOptions) (*ControlPlane, error) {
	addresses, err := FreeAddresses(2 + options.APIServers)
	if err != nil {
		return nil, fmt.Errorf("finding free ports: %w", err)
	}
	c := &ControlPlane{EtcdURL: "http://" + addresses[0], folder: options.Folder}
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
	// One after the other: the first API server fills the store.
	for _, program := range append([]*Process{c.Etcd}, c.APIServers...) {
		if err := StartReady(ctx, program); err != nil {
			c.Stop()
			return nil, fmt.Errorf("%w; the logs are in %s", err, c.folder)
		}
	}
	return c, nil
}

// KillAPIServers kills all API servers.
func (c *ControlPlane) KillAPIServers() {
	for _, server := range c.APIServers {
		server.Kill()
	}
}

// Stop kills all processes.
func (c *ControlPlane) Stop() {
	c.KillAPIServers()
	c.Etcd.Kill()
}

// DataFolder is where etcd keeps its data.
func (c *ControlPlane) DataFolder() string { return filepath.Join(c.folder, "etcd") }

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
	p := NewProcess(log, filepath.Join(Assets(), "etcd"),
		"--data-dir="+c.DataFolder(),
		"--listen-client-urls="+c.EtcdURL, "--advertise-client-urls="+c.EtcdURL,
		"--listen-peer-urls=http://"+peer, "--initial-advertise-peer-urls=http://"+peer,
		"--initial-cluster=default=http://"+peer,
		"--unsafe-no-fsync", "--log-level=warn",
		fmt.Sprintf("--quota-backend-bytes=%d", quota),
	)
	p.ReadyURL = c.EtcdURL + "/health?exclude=NOSPACE"
	return p, nil
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
	p := NewProcess(log, filepath.Join(Assets(), "kube-apiserver"),
		"--etcd-servers="+c.EtcdURL, "--etcd-compaction-interval=0",
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+port,
		"--cert-dir="+filepath.Join(c.folder, fmt.Sprintf("certs-%d", number)),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--token-auth-file="+filepath.Join(c.folder, "tokens.csv"),
		"--authorization-mode=RBAC", "--allow-privileged=true", "--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.96.0.0/24", "--disable-admission-plugins=ServiceAccount",
	)
	p.ReadyURL = "https://" + address + "/readyz"
	return p, nil
}
