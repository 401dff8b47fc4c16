package inspect

import (
	"context"
	"io/fs"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rackless/rackless/machine/inspect/tree"
	"github.com/rackless/rackless/machine/topology"
)

// files maps names to contents, "-> target" for a link, "unreadable", or "dir" for an empty directory.
type files map[string]string

func (f files) with(more ...files) files {
	out := maps.Clone(f)
	for _, m := range more {
		maps.Copy(out, m)
	}
	return out
}

func (f files) tree(t testing.TB) *tree.Mem {
	t.Helper()
	var b tree.Builder
	for name, content := range f {
		var err error
		switch target, isLink := strings.CutPrefix(content, "-> "); {
		case isLink:
			err = b.Link(name, target)
		case content == "unreadable":
			err = b.Unreadable(name, 0o400, fs.ErrPermission)
		case content == "dir":
			err = b.Dir(name)
		default:
			err = b.File(name, []byte(content+"\n"))
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return b.Mem()
}

func (f files) reader(t testing.TB) *reader {
	t.Helper()
	return &reader{ctx: context.Background(), fs: f.tree(t), h: new(topology.Host)}
}

func (f files) read(t testing.TB) *topology.Host {
	t.Helper()
	r := f.reader(t)
	r.readSystem()
	r.readNUMANodes()
	r.readCPUs()
	r.readMemory()
	r.readKernel()
	r.h.Complete()
	return r.h
}

type cpuShape struct {
	packages, cores, threads int // per package, per core
	coresPerL3               int
}

// files numbers the first threads of all cores before the second ones, like most x86 firmware.
func (s cpuShape) files() files {
	f := files{}
	all := s.packages * s.cores
	threads := func(core int) topology.CPUSet {
		var set topology.CPUSet
		for i := range s.threads {
			set = set.Union(topology.CPUs(core + i*all))
		}
		return set
	}
	for core := range all {
		p := core / s.cores
		var siblings, cache topology.CPUSet
		for c := p * s.cores; c < (p+1)*s.cores; c++ {
			siblings = siblings.Union(threads(c))
			if c/s.coresPerL3 == core/s.coresPerL3 {
				cache = cache.Union(threads(c))
			}
		}
		for cpu := range threads(core).All() {
			dir := cpuDir + "/cpu" + strconv.Itoa(cpu)
			maps.Copy(f, files{
				dir + "/topology/physical_package_id":  strconv.Itoa(p),
				dir + "/topology/core_id":              strconv.Itoa(core % s.cores),
				dir + "/topology/thread_siblings_list": threads(core).String(),
				dir + "/topology/core_siblings_list":   siblings.String(),
				dir + "/cache/index0/level":            "1",
				dir + "/cache/index3/level":            "3",
				dir + "/cache/index3/type":             "Unified",
				dir + "/cache/index3/size":             "32768K",
				dir + "/cache/index3/shared_cpu_list":  cache.String(),
				dir + "/cpufreq/scaling_governor":      "performance",
				dir + "/cpufreq/cpuinfo_max_freq":      "3500000",
			})
		}
	}
	last := strconv.Itoa(all*s.threads - 1)
	f[cpuDir+"/online"] = "0-" + last
	f[cpuDir+"/present"] = "0-" + last
	return f
}

type countingFS struct {
	fs.FS
	asked *atomic.Int64
	names func(string)
}

func (c countingFS) note(name string) {
	c.asked.Add(1)
	if c.names != nil {
		c.names(name)
	}
}

func (c countingFS) Open(name string) (fs.File, error) {
	c.note(name)
	return c.FS.Open(name)
}

func (c countingFS) ReadFile(name string) ([]byte, error) {
	c.note(name)
	return fs.ReadFile(c.FS, name)
}

func (c countingFS) ReadDir(name string) ([]fs.DirEntry, error) {
	c.note(name)
	return fs.ReadDir(c.FS, name)
}

func (c countingFS) Stat(name string) (fs.FileInfo, error) {
	c.note(name)
	return fs.Stat(c.FS, name)
}

func (c countingFS) ReadLink(name string) (string, error) {
	c.note(name)
	return fs.ReadLink(c.FS, name)
}

func (c countingFS) Lstat(name string) (fs.FileInfo, error) {
	c.note(name)
	return fs.Lstat(c.FS, name)
}
