package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// etcdOptions say what etcd the control plane has.
type etcdOptions struct {
	members int
	fsync   bool
}

func (o etcdOptions) String() string {
	if o.fsync {
		return fmt.Sprintf("%d members with fsync", o.members)
	}
	return fmt.Sprintf("%d members without fsync", o.members)
}

// configure has the environment use an etcd of so many members, with or without fsync, whose data lie in the folder. It
// starts and returns all members but the first, which belongs to the environment and starts with it.
func (o etcdOptions) configure(environment *envtest.Environment, folder string) ([]*testenv.Process, error) {
	etcd := &envtest.Etcd{}
	environment.ControlPlane.Etcd = etcd
	if o.fsync {
		etcd.Configure().Disable("unsafe-no-fsync")
	}
	if o.members <= 1 {
		return nil, nil
	}
	addresses, err := testenv.FreeAddresses(2 * o.members)
	if err != nil {
		return nil, err
	}
	clients, peers := make([]string, o.members), make([]string, o.members)
	var initial []string
	for i := range o.members {
		clients[i], peers[i] = "http://"+addresses[2*i], "http://"+addresses[2*i+1]
		initial = append(initial, fmt.Sprintf("%s=%s", memberName(i), peers[i]))
	}
	cluster := strings.Join(initial, ",")
	if etcd.URL, err = url.Parse(clients[0]); err != nil {
		return nil, err
	}
	etcd.Configure().Set("name", memberName(0)).Set("initial-cluster", cluster).
		Set("listen-peer-urls", peers[0]).Set("initial-advertise-peer-urls", peers[0])
	environment.ControlPlane.GetAPIServer().Configure().Set("etcd-servers", strings.Join(clients, ","))
	var members []*testenv.Process
	for i := 1; i < o.members; i++ {
		log, err := os.Create(filepath.Join(folder, memberName(i)+".log"))
		if err != nil {
			return members, err
		}
		args := []string{
			"--name=" + memberName(i), "--data-dir=" + filepath.Join(folder, memberName(i)), "--initial-cluster=" + cluster,
			"--listen-client-urls=" + clients[i], "--advertise-client-urls=" + clients[i],
			"--listen-peer-urls=" + peers[i], "--initial-advertise-peer-urls=" + peers[i], "--log-level=warn",
		}
		if !o.fsync {
			args = append(args, "--unsafe-no-fsync")
		}
		member := testenv.NewProcess(log, filepath.Join(testenv.Assets(), "etcd"), args...)
		members = append(members, member)
		if err := member.Start(); err != nil {
			return members, err
		}
	}
	return members, nil
}

func memberName(i int) string { return fmt.Sprintf("etcd-%d", i) }
