package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// runInside runs the entry point of an unpacked image with --version. As root it sees nothing but the image's files and
// is the image's user, so that it shows whether it needs more.
func runInside(ctx context.Context, root string, config v1.Config) ([]byte, error) {
	command := exec.CommandContext(ctx, filepath.Join(root, config.Entrypoint[0]), "--version")
	command.Env = config.Env
	if os.Geteuid() == 0 {
		command.Path = config.Entrypoint[0]
		command.Dir = "/"
		command.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	}
	return command.CombinedOutput()
}
