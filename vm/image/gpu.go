package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// The set gpu has libraries in place of NVIDIA's for emulated GPUs. They are compiled from the C files in gpu when the
// image is built, and perftest is compiled with them.

// gpuSources are compiled by gpu/files/mnt/compile.
var gpuSources = []string{"perftest"}

// sourcesRelease is the release of all sources. Debian 12's perftest is too old for dma-bufs.
const sourcesRelease = "trixie"

// sourceArchive returns the name of a source package's original archive in the system of an image, below /mnt.
func sourceArchive(name string) string { return name + ".orig.tar" }

// fetchSources downloads the original archives of source packages to work. apt checks their digests against Debian's
// signed list.
func fetchSources(ctx context.Context, o Options, work string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	o.progress("download the sources of %d packages of Debian 13, and their list (11 MB)", len(names))
	dir := filepath.Join(work, "sources")
	a, err := newApt(ctx, dir, Recipe{Release: sourcesRelease, Suites: []string{sourcesRelease}}, "deb-src")
	if err != nil {
		return err
	}
	for _, name := range names {
		_, err := a.run(ctx, dir, "apt-get", "--quiet", "source", "--download-only", "--tar-only", name)
		if err != nil {
			return fmt.Errorf("download the source of %s: %w", name, err)
		}
		found, err := filepath.Glob(filepath.Join(dir, name+"_*.orig.tar.*"))
		if err != nil {
			return err
		}
		found = slices.DeleteFunc(found, func(f string) bool { return filepath.Ext(f) == ".asc" })
		if len(found) != 1 {
			return errors.New("download the source of " + name + ": apt-get brought no original archive")
		}
		if err := os.Rename(found[0], filepath.Join(work, sourceArchive(name))); err != nil {
			return err
		}
	}
	return nil
}
