// Package memlimit sets Go's soft memory limit from the container's, so that the garbage collector works harder before
// the kernel kills the process.
package memlimit

import (
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// unlimited is the least value that cgroup v1 reports for a group without a limit: the largest number of whole pages.
// https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
const unlimited = math.MaxInt64 / (64 << 10) * (64 << 10)

// OfCgroup returns the memory limit in bytes of the control group that this process belongs to: the smallest of its own and
// of its ancestors', as far as they are visible. It is not ok without a limit, and where there are no control groups.
// root is the root of the file system. It reads cgroup v2 and v1.
func OfCgroup(root fs.FS) (limit int64, ok bool) {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(groups)) {
		// hierarchy:controllers:path, see cgroups(7). In a container the path may be the host's and not exist; the
		// container's own group is the root then.
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		var folder, file string
		switch {
		case len(fields) != 3:
			continue
		case fields[1] == "":
			folder, file = "sys/fs/cgroup", "memory.max"
		case slices.Contains(strings.Split(fields[1], ","), "memory"):
			folder, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for group := path.Clean("/" + fields[2]); ; group = path.Dir(group) {
			if own, found := read(root, path.Join(folder, group, file)); found && (!ok || own < limit) {
				limit, ok = own, true
			}
			if group == "/" {
				break
			}
		}
	}
	return limit, ok
}

// read reads the limit in a file; cgroup v2 writes "max" for none.
func read(root fs.FS, name string) (limit int64, ok bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	limit, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return limit, err == nil && limit > 0 && limit < unlimited
}

// SoftLimit returns Go's memory limit for a container's: nine tenths. The rest is for what Go does not count, such as
// the binary's own pages and the kernel's socket buffers.
func SoftLimit(container int64) int64 { return container / 10 * 9 }
