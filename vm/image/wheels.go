package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// An image with the sets ai and gpu has programs that use CUDA, from wheels of PyPI, which wheels/files/mnt installs.

// gpuWheels are the versions that a test has run. libucx is as old as its ucx_perftest has to be for NIXL's UCX.
var gpuWheels = []string{"libucx-cu12==1.22.0", "mooncake-transfer-engine==0.3.13.post1", "nixl-cu12==1.5.1",
	"nvidia-ml-py==13.615.71"}

// wheelPythons are the versions of Python of the releases: a wheel is made for one.
var wheelPythons = map[string]string{"bookworm": "3.11", "trixie": "3.13"}

const wheelEnd = ".whl"

func hasWheels(sets []string) bool {
	return slices.Contains(sets, setAI) && slices.Contains(sets, setGPU)
}

func wheelName(wheel string) string {
	name, _, _ := strings.Cut(wheel, "==")
	return name
}

// fetchWheels downloads a recipe's wheels with pip, which installs nothing on this machine.
func fetchWheels(ctx context.Context, o Options, work string, r Recipe) error {
	for _, wheel := range r.Wheels {
		o.progress("download the wheel %s from PyPI", wheel)
		dir := filepath.Join(work, "wheel-"+wheelName(wheel))
		_, err := run(ctx, command{name: "python3", args: []string{"-m", "pip", "download", "--quiet",
			"--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--python-version",
			wheelPythons[r.Release], "--dest", dir, wheel}, dir: work})
		if err != nil {
			return fmt.Errorf("download the wheel %s: %w; this needs python3-pip", wheel, err)
		}
		found, err := filepath.Glob(filepath.Join(dir, "*"+wheelEnd))
		if err != nil {
			return err
		}
		if len(found) != 1 {
			return fmt.Errorf("download the wheel %s: pip brought %d files", wheel, len(found))
		}
		if err := os.Rename(found[0], filepath.Join(work, wheelName(wheel)+wheelEnd)); err != nil {
			return err
		}
	}
	return nil
}
