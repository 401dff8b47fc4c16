package vm

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"

	"github.com/rackless/rackless/internal/trace"
)

// MakeOverlay makes a disk whose contents are those of the image below until they are written to. A
// size of 0 is that of the image.
func MakeOverlay(ctx context.Context, path, below string, size int64) error {
	args := []string{"create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", below, path}
	if size > 0 {
		args = append(args, strconv.FormatInt(size, 10))
	}
	return RunTool(ctx, "qemu-img", "qemu-utils", args...)
}

// RunTool runs a program of the Debian package.
func RunTool(ctx context.Context, name, pkg string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		// mke2fs is in sbin, which is not in every user's PATH.
		if path, err = exec.LookPath("/usr/sbin/" + name); err != nil {
			return fmt.Errorf("%s is not in PATH: install Debian package %s", name, pkg)
		}
	}
	trace.Runs("", append([]string{path}, args...))
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}
