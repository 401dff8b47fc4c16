package lab

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/words"
)

// FullReleases are the Debian releases of full nodes.
func FullReleases() []string { return []string{"debian-12", "debian-13"} }

// AnyRelease stands for the first of FullReleases.
const AnyRelease = "debian"

// PackageSets can be added to releases.
func PackageSets() []string {
	return []string{"ai", "apps", "gpu", "mpi", "mpich", "slurm", "suites", setVFIO}
}

// setVFIO is the package set for GPUs of the personality vfio. Only the backports of vfioRelease have its kernel.
const setVFIO, vfioRelease = "vfio", "debian-13"

// PackageSetsOf can be added to a release.
func PackageSetsOf(release string) []string {
	return slices.DeleteFunc(PackageSets(), func(set string) bool { return set == setVFIO && release != vfioRelease })
}

const (
	// DefaultFullMemory is for a full node. Its system uses about 100 MiB.
	DefaultFullMemory = 512 * MiB
	// MinFullMemory is enough to boot and run a program.
	MinFullMemory = 384 * MiB
)

// Full reports whether the node is a Debian system that rackless builds.
func (n Node) Full() bool { return isFull(n.Image) }

func isFull(image string) bool {
	release, _, _ := strings.Cut(image, "+")
	return slices.Contains(FullReleases(), release)
}

// OwnImage reports whether the node boots the user's disk image, with the path Image.
func (n Node) OwnImage() bool { return n.HasDisk() && !n.Full() }

// HasDisk is true for a full node, or one with the user's image.
func (n Node) HasDisk() bool { return n.Image != "" && n.Image != DefaultImage }

// imageText wants a dot or a slash in a path, so that a misspelt name is not taken for one.
func (d *decoder) imageText(path string, n ast.Node) *string {
	s, ok := d.Text(path, n, "text")
	if !ok {
		return nil
	}
	if !d.matches(imagePattern, s) || utf8.RuneCountInString(s) > maxImage {
		d.Fail(strictyaml.PlaceOf(n), Error{Key: path, What: "bad image name", Have: strictyaml.Quote(s),
			Want: fmt.Sprintf("1 to %d characters on one line", maxImage)})
		return nil
	}
	if s == DefaultImage || strings.ContainsAny(s, "./") {
		return &s
	}
	release, rest, more := strings.Cut(s, "+")
	if release == AnyRelease {
		release = FullReleases()[0]
		s = release + strings.TrimPrefix(s, AnyRelease)
	}
	e := Error{Key: path, What: "unknown image", Have: strictyaml.Quote(s),
		Want: words.Or(append(append([]string{DefaultImage}, FullReleases()...), "the path of a disk image"))}
	if !slices.Contains(FullReleases(), release) {
		e.Fix = strictyaml.Meant(release, append(FullReleases(), DefaultImage))
		if release == "bookworm" {
			e.Fix = "write " + strings.Join(append([]string{FullReleases()[0]}, strings.Fields(strings.ReplaceAll(rest,
				"+", " "))...), "+")
		}
		d.Fail(strictyaml.PlaceOf(n), e)
		return nil
	}
	sets := strings.Split(rest, "+")
	for i, set := range sets {
		switch {
		case !more:
		case !slices.Contains(PackageSetsOf(release), set):
			there := PackageSetsOf(release)
			e.What, e.Have = "unknown package set", strictyaml.Quote(set)
			e.Want = words.Or(there) + ", as in " + release + "+" + strings.Join(there, "+")
			e.Fix = strictyaml.Meant(set, there)
			if set == setVFIO {
				e.What, e.Have, e.Want = "package set of another release", strictyaml.Quote(s), vfioRelease
				e.Fix = "write " + vfioRelease + "+" + rest + ", whose backports have its kernel"
			}
			d.Fail(strictyaml.PlaceOf(n), e)
			return nil
		case slices.Contains(sets[:i], set):
			d.Fail(strictyaml.PlaceOf(n), Error{Key: path, What: "package set twice", Have: strictyaml.Quote(s),
				Fix: "name " + set + " once"})
			return nil
		}
	}
	return &s
}

func (e *entry) checkFull(n Node) {
	if !n.Full() || n.AutoMemory || n.Memory >= MinFullMemory {
		return
	}
	path, at := e.written("memory")
	e.failOnce(at, Error{Key: path, What: "too little memory for a full node", Have: n.Memory.String(),
		Want: fmt.Sprintf("at least %v, because image is %s", MinFullMemory, n.Image),
		Fix:  fmt.Sprintf("write memory: %v, or leave it out", DefaultFullMemory)})
}
