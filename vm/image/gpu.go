package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The set gpu has libraries in place of NVIDIA's, compiled from the C files in gpu when the image is built, and a
// perftest compiled with them.

// gpuSources are compiled by gpu/files/mnt/compile.
var gpuSources = []string{"perftest"}

// gpuPlugins show GPUs to hwloc and Slurm. Their packages depend on NVIDIA's libraries.
func gpuPlugins(sets []string) []string {
	plugins := []string{"libhwloc-contrib-plugins"}
	if slices.Contains(sets, setSlurm) {
		plugins = append(plugins, "slurm-wlm-nvml-plugin")
	}
	return plugins
}

// sourcesRelease is newer than Debian 12, whose perftest is too old for dma-bufs.
const sourcesRelease = "trixie"

const (
	sourceEnd  = ".orig.tar"
	packageEnd = ".deb"
)

func (r Recipe) fetched() (names []string) {
	for _, name := range r.Sources {
		names = append(names, name+sourceEnd)
	}
	for _, name := range r.Unpacked {
		names = append(names, name+packageEnd)
	}
	return names
}

// fetchFiles downloads a recipe's sources and packages to unpack, checked by apt against Debian's signed lists.
func fetchFiles(ctx context.Context, o Options, work string, r Recipe) error {
	if len(r.Sources) > 0 {
		o.progress("download the list of Debian 13's sources (11 MB), and the source of %s",
			strings.Join(r.Sources, ", "))
		dir := filepath.Join(work, "sources")
		a, err := newApt(ctx, dir, Recipe{Release: sourcesRelease, Suites: []string{sourcesRelease}}, "deb-src", "main")
		if err != nil {
			return err
		}
		_, err = a.run(ctx, dir, append([]string{"apt-get", "--quiet", "source", "--download-only", "--tar-only"},
			r.Sources...)...)
		if err != nil {
			return fmt.Errorf("download sources: %w", err)
		}
		if err := takeFiles(dir, work, r.Sources, "_*.orig.tar.?z", sourceEnd); err != nil {
			return err
		}
	}
	if len(r.Unpacked) == 0 {
		return nil
	}
	dir := filepath.Join(work, "contrib")
	a, err := newApt(ctx, dir, r, "deb", "contrib")
	if err != nil {
		return err
	}
	if err := a.download(ctx, dir, r.Unpacked); err != nil {
		return err
	}
	return takeFiles(dir, work, r.Unpacked, "_*.deb", packageEnd)
}

func takeFiles(from, to string, names []string, pattern, end string) error {
	for _, name := range names {
		found, err := filepath.Glob(filepath.Join(from, name+pattern))
		if err != nil {
			return err
		}
		if len(found) != 1 {
			return fmt.Errorf("download %s: apt-get brought %d files", name, len(found))
		}
		if err := os.Rename(found[0], filepath.Join(to, name+end)); err != nil {
			return err
		}
	}
	return nil
}
