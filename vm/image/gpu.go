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
	for _, name := range slices.Concat(r.Sources, r.OwnSources) {
		names = append(names, name+sourceEnd)
	}
	for _, name := range r.Unpacked {
		names = append(names, name+packageEnd)
	}
	for _, wheel := range r.Wheels {
		names = append(names, wheelName(wheel)+wheelEnd)
	}
	return names
}

// fetchFiles downloads a recipe's sources and packages to unpack, checked by apt against Debian's signed lists, and
// its wheels.
func fetchFiles(ctx context.Context, o Options, work string, r Recipe) error {
	if err := fetchSources(ctx, o, work, sourcesRelease, r.Sources); err != nil {
		return err
	}
	if err := fetchSources(ctx, o, work, r.Release, r.OwnSources); err != nil {
		return err
	}
	if err := fetchWheels(ctx, o, work, r); err != nil {
		return err
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

// fetchSources downloads the original archives of source packages of a release.
func fetchSources(ctx context.Context, o Options, work, release string, sources []string) error {
	if len(sources) == 0 {
		return nil
	}
	o.progress("download the list of the sources of %s (11 MB), and the source of %s", release,
		strings.Join(sources, ", "))
	dir := filepath.Join(work, "sources-"+release)
	a, err := newApt(ctx, dir, Recipe{Release: release, Suites: []string{release}}, "deb-src", "main")
	if err != nil {
		return err
	}
	_, err = a.run(ctx, dir, append([]string{"apt-get", "--quiet", "source", "--download-only", "--tar-only"},
		sources...)...)
	if err != nil {
		return fmt.Errorf("download sources: %w", err)
	}
	return takeFiles(dir, work, sources, "_*.orig.tar.?z*", sourceEnd)
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
