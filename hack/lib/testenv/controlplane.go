package testenv

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// ControlPlaneOptions say what kind of control plane to make.
type ControlPlaneOptions struct {
	// Folder takes data, keys and logs.
	Folder string
	// APIServers is how many there are. They share keys and etcd. Default: 1.
	APIServers int
	// EtcdMembers is how many etcd processes there are. Default: 1.
	EtcdMembers int
	// Fsync has etcd sync to disk. Without it, etcd survives kill -9, but not the loss of power.
	Fsync bool
	// KeepHistory has etcd keep the whole history. Otherwise, the API server compacts it.
	KeepHistory bool
	// QuotaBytes is etcd's space quota; zero is etcd's own default.
	QuotaBytes int64
}

// ControlPlane is an etcd with one API server or more, each a process that can be frozen, killed and
// started again.
type ControlPlane struct {
	// Etcd is the store, or its first member.
	Etcd *Process
	// EtcdURL is where it answers, without TLS.
	EtcdURL string
	// APIServers are the API servers.
	APIServers []*Process
	// URLs are where they answer, in the same order.
	URLs []string
	// Token is the administrator's.
	Token string

	folder  string
	members []*Process // of etcd
}

// StartControlPlane starts a control plane and waits until it answers. It has no CRDs yet. With an error, nothing runs.
func StartControlPlane(ctx context.Context, options ControlPlaneOptions) (*ControlPlane, error) {
	c := &ControlPlane{folder: options.Folder, Token: rand.Text()}
	if err := c.describe(options); err != nil {
		return c, err
	}
	err := StartReady(ctx, c.members...)
	// One after the other: the first API server fills the store.
	for i := 0; i < len(c.APIServers) && err == nil; i++ {
		err = StartReady(ctx, c.APIServers[i])
	}
	if err != nil {
		c.Stop()
		return c, fmt.Errorf("%w; the logs are in %s", err, c.folder)
	}
	return c, nil
}

// describe makes the keys and the processes, not yet started.
func (c *ControlPlane) describe(options ControlPlaneOptions) error {
	if err := c.makeKeys(); err != nil {
		return fmt.Errorf("making keys: %w", err)
	}
	members, servers := max(1, options.EtcdMembers), max(1, options.APIServers)
	addresses, err := FreeAddresses(2*members + servers)
	if err != nil {
		return fmt.Errorf("finding free ports: %w", err)
	}
	clients, err := c.addEtcd(options, addresses[:members], addresses[members:2*members])
	if err != nil {
		return err
	}
	for _, address := range addresses[2*members:] {
		if err := c.addAPIServer(options, address, clients); err != nil {
			return err
		}
	}
	return nil
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
	for _, member := range c.members {
		member.Kill()
	}
}

// DataFolder is where etcd, or its first member, keeps its data.
func (c *ControlPlane) DataFolder() string { return filepath.Join(c.folder, etcdName(0)) }

// CallEtcd posts to the JSON gateway of etcd, or of its first member, and decodes the answer.
func (c *ControlPlane) CallEtcd(ctx context.Context, path string, body, answer any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	text, err := Call(ctx, http.MethodPost, c.EtcdURL+path, string(encoded))
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), answer)
}

func etcdName(member int) string { return fmt.Sprintf("etcd-%d", member) }

func (c *ControlPlane) makeKeys() error {
	if err := os.MkdirAll(c.folder, 0o700); err != nil {
		return err
	}
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

// addEtcd describes etcd's members at these addresses for clients and for each other, and returns the URLs for clients.
func (c *ControlPlane) addEtcd(options ControlPlaneOptions, addresses, peers []string) (clients string, err error) {
	var cluster []string
	for i, peer := range peers {
		cluster = append(cluster, etcdName(i)+"=http://"+peer)
	}
	for i, address := range addresses {
		client, peer := "http://"+address, "http://"+peers[i]
		args := []string{
			"--name=" + etcdName(i), "--data-dir=" + filepath.Join(c.folder, etcdName(i)),
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=" + strings.Join(cluster, ","),
			"--log-level=warn", fmt.Sprintf("--quota-backend-bytes=%d", options.QuotaBytes),
		}
		if !options.Fsync {
			args = append(args, "--unsafe-no-fsync")
		}
		member, err := c.process(etcdName(i), "etcd", client+"/health?exclude=NOSPACE", args)
		if err != nil {
			return "", err
		}
		c.members = append(c.members, member)
	}
	c.Etcd, c.EtcdURL = c.members[0], "http://"+addresses[0]
	return "http://" + strings.Join(addresses, ",http://"), nil
}

// addAPIServer describes an API server.
func (c *ControlPlane) addAPIServer(options ControlPlaneOptions, address, etcd string) error {
	name := fmt.Sprintf("apiserver-%d", len(c.APIServers))
	key := filepath.Join(c.folder, "sa.key")
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	args := []string{
		"--etcd-servers=" + etcd,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + port,
		"--cert-dir=" + filepath.Join(c.folder, name),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
		"--token-auth-file=" + filepath.Join(c.folder, "tokens.csv"),
		"--authorization-mode=RBAC", "--allow-privileged=true", "--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.96.0.0/24", "--disable-admission-plugins=ServiceAccount",
	}
	if options.KeepHistory {
		args = append(args, "--etcd-compaction-interval=0")
	}
	server, err := c.process(name, "kube-apiserver", "https://"+address+"/readyz", args)
	c.APIServers, c.URLs = append(c.APIServers, server), append(c.URLs, "https://"+address)
	return err
}

// process describes a program with a log of its own.
func (c *ControlPlane) process(name, program, readyURL string, args []string) (*Process, error) {
	log, err := os.Create(filepath.Join(c.folder, name+".log"))
	if err != nil {
		return nil, err
	}
	p := NewProcess(log, filepath.Join(Assets(), program), args...)
	p.ReadyURL = readyURL
	return p, nil
}
