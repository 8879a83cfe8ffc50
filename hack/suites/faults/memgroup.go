package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// memoryGroup is a control group with a limit of memory, as a container has one.
type memoryGroup struct {
	folder string
	v1     bool
}

// newMemoryGroup makes a group beside the others, which needs the permissions of root. Swap counts, so nobody escapes to it.
func newMemoryGroup(name string, limit int64) (*memoryGroup, error) {
	const root = "/sys/fs/cgroup"
	group, file := &memoryGroup{folder: filepath.Join(root, name)}, "memory.max"
	if _, err := os.Stat(filepath.Join(root, "memory")); err == nil {
		group, file = &memoryGroup{folder: filepath.Join(root, "memory", name), v1: true}, "memory.limit_in_bytes"
	}
	if err := os.MkdirAll(group.folder, 0o755); err != nil {
		return nil, fmt.Errorf("making a control group: %w", err)
	}
	if err := os.WriteFile(filepath.Join(group.folder, file), strconv.AppendInt(nil, limit, 10), 0o644); err != nil {
		return nil, fmt.Errorf("limiting the memory of a control group: %w", err)
	}
	return group, nil
}

// wrap writes a program that joins the group and becomes the binary, and returns its path.
func (g *memoryGroup) wrap(binary, path string) (string, error) {
	script := fmt.Sprintf("#!/bin/sh\necho $$ >%q && exec %q \"$@\"\n", filepath.Join(g.folder, "cgroup.procs"), binary)
	return path, os.WriteFile(path, []byte(script), 0o700)
}

// peak returns the most bytes that the group ever had, those of files that it read among them.
func (g *memoryGroup) peak() int64 {
	file := "memory.peak"
	if g.v1 {
		file = "memory.max_usage_in_bytes"
	}
	raw, _ := os.ReadFile(filepath.Join(g.folder, file))
	bytes, _ := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	return bytes
}

// kills returns how many processes of the group the kernel has killed because the group was at its limit.
func (g *memoryGroup) kills() (n int) {
	file := "memory.events"
	if g.v1 {
		file = "memory.oom_control"
	}
	events, err := os.Open(filepath.Join(g.folder, file))
	if err != nil {
		return 0
	}
	defer func() { _ = events.Close() }()
	for lines := bufio.NewScanner(events); lines.Scan(); {
		if count, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
			n, _ = strconv.Atoi(count)
		}
	}
	return n
}

// remove removes the group, whose processes have ended.
func (g *memoryGroup) remove() { _ = os.Remove(g.folder) }
