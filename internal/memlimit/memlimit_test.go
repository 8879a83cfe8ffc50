package memlimit

import (
	"testing"
	"testing/fstest"

	. "github.com/onsi/gomega"
)

func TestTheLimitOfTheCgroup(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  int64 // 0: none
	}{
		"no control groups": {nil, 0},
		"a container with cgroup v2": {map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n",
		}, 1 << 30},
		"a container without a limit": {map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n",
		}, 0},
		"the root group of the host, which has no such file": {map[string]string{"proc/self/cgroup": "0::/\n"}, 0},
		"a service whose slice has the smaller limit": {map[string]string{
			"proc/self/cgroup":                                        "0::/system.slice/tocsin.service\n",
			"sys/fs/cgroup/system.slice/memory.max":                   "536870912\n",
			"sys/fs/cgroup/system.slice/tocsin.service/memory.max":    "1073741824\n",
			"sys/fs/cgroup/other.slice/memory.max":                    "1048576\n",
			"sys/fs/cgroup/system.slice/tocsin.service/memory.events": "max 0\n",
		}, 512 << 20},
		"a container with cgroup v1 sees the host's path and its own group as the root": {map[string]string{
			"proc/self/cgroup":                             "5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n0::/system.slice\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "268435456\n",
			"sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.quota": "100\n",
		}, 256 << 20},
		"cgroup v1 without a limit": {map[string]string{
			"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 0},
		"a path outside of the namespace": {map[string]string{
			"proc/self/cgroup": "0::/../../other\n", "sys/fs/cgroup/memory.max": "1073741824\n",
		}, 1 << 30},
		"unreadable values": {map[string]string{
			"proc/self/cgroup": "what\n0::/a\n", "sys/fs/cgroup/a/memory.max": "-1\n", "sys/fs/cgroup/memory.max": "",
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			root := fstest.MapFS{}
			for path, text := range test.files {
				root[path] = &fstest.MapFile{Data: []byte(text)}
			}
			limit, ok := OfCgroup(root)
			g.Expect(ok).To(Equal(test.want != 0))
			if ok {
				g.Expect(limit).To(Equal(test.want))
				g.Expect(SoftLimit(limit)).To(BeNumerically("~", test.want/10*9, 16))
			}
		})
	}
}
