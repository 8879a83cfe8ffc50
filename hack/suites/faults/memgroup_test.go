//go:build slow

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// memoryGroup is a control group with a limit of memory, as a container has one, and its files.
type memoryGroup struct{ folder, limit, peakFile, events string }

// newMemoryGroup makes a group beside the others, which needs the permissions of root. Swap counts, so nobody escapes to it.
func newMemoryGroup(name string, limit int64) (*memoryGroup, error) {
	const root = "/sys/fs/cgroup"
	group := &memoryGroup{filepath.Join(root, name), "memory.max", "memory.peak", "memory.events"}
	if _, err := os.Stat(filepath.Join(root, "memory")); err == nil { // version 1
		group = &memoryGroup{
			filepath.Join(root, "memory", name), "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control",
		}
	}
	if err := os.MkdirAll(group.folder, 0o755); err != nil {
		return nil, fmt.Errorf("making a control group: %w", err)
	}
	if err := os.WriteFile(filepath.Join(group.folder, group.limit), strconv.AppendInt(nil, limit, 10), 0o644); err != nil {
		return nil, fmt.Errorf("limiting the memory of a control group: %w", err)
	}
	return group, nil
}

// wrap writes a program that joins the group and becomes the manager, and returns its path.
func (g *memoryGroup) wrap(r *rig, name string) string {
	script := fmt.Sprintf("#!/bin/sh\necho $$ >%q && exec %q \"$@\"\n", filepath.Join(g.folder, "cgroup.procs"), *manager)
	path := r.Write(name, script)
	r.Must(os.Chmod(path, 0o700))
	return path
}

func (g *memoryGroup) read(file string) string {
	raw, _ := os.ReadFile(filepath.Join(g.folder, file))
	return strings.TrimSpace(string(raw))
}

// peak returns the most bytes that the group ever had, those of files that it read among them.
func (g *memoryGroup) peak() int64 {
	bytes, _ := strconv.ParseInt(g.read(g.peakFile), 10, 64)
	return bytes
}

// kills returns how many processes of the group the kernel has killed because the group was at its limit.
func (g *memoryGroup) kills() (n int) {
	for line := range strings.Lines(g.read(g.events)) {
		_, _ = fmt.Sscanf(line, "oom_kill %d", &n)
	}
	return n
}

// remove removes the group, whose processes have ended.
func (g *memoryGroup) remove() { _ = os.Remove(g.folder) }
