// Package inspect reads a machine into a topology.Host: the live one, or any tree of its /sys and /proc.
//
// A missing file leaves its field unset, since containers and virtual machines lack many. A file that exists but cannot
// be read or understood is also listed in Host.Unread. Guesses are marked as such.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"slices"

	"github.com/rackless/rackless/machine/topology"
)

// A Source is a machine to read.
type Source struct {
	// Name is for messages and the provenance: a file or directory, or "/" for the live machine.
	Name string
	// FS is the machine's root directory. It must support fs.ReadLinkFS and follow links to directories.
	FS fs.FS
	// Run runs a command on the machine or returns its recorded output. It returns fs.ErrNotExist for a missing
	// program, and is nil without commands.
	Run func(ctx context.Context, argv ...string) ([]byte, error)
	// Live is set if FS is this machine's root directory.
	Live bool
}

// ErrNoMachine is for a tree without CPUs, memory or PCI devices.
var ErrNoMachine = errors.New("nothing of a machine found: no sys/devices, no sys/bus/pci/devices, no proc/cpuinfo")

// Read reads a machine. It returns an error only if the source contains none or ctx is done; everything else is in
// Host.Unread.
func Read(ctx context.Context, src Source) (*topology.Host, error) {
	h := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceTree, Name: src.Name,
		ThisSystem: src.Live}}
	if src.Live {
		h.Provenance.Kind = topology.SourceLive
	}
	if src.Live && runtime.GOOS != "linux" {
		return nil, fmt.Errorf("this machine runs %s, and only Linux can be inspected: name a file, or a host by ssh",
			runtime.GOOS)
	}
	r := &reader{ctx: ctx, fs: src.FS, run: src.Run, live: src.Live, h: h}
	if !slices.ContainsFunc([]string{"sys/devices", "sys/bus/pci/devices", "proc/cpuinfo"}, r.exists) {
		return nil, ErrNoMachine
	}
	for _, read := range []func(){
		r.readSystem, r.readNUMANodes, r.readCPUs, r.readMemory, r.readKernel,
		r.readPCI, r.readCandidates, r.readIOMMU,
		r.readNICs, r.readBonds, r.readGPUs, r.readStorage, r.readRoutes, r.readTenants,
	} {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		read()
	}
	h.Complete()
	r.readIRQs() // needs the devices and the isolated CPUs
	h.Complete()
	h.Provenance.Filled = h.Parts()
	return h, nil
}

// A Job is a host to read.
type Job struct {
	Name string // for headings and messages
	Read func(ctx context.Context) (*topology.Host, error)
}

// Jobs are the hosts at paths.
type Jobs struct {
	All    []Job
	Many   bool // several hosts were requested
	Joined int  // files combined into one host without a request

	Close func() // may be nil
}

// Done releases shared resources.
func (j *Jobs) Done() {
	if j.Close != nil {
		j.Close()
	}
}

// Grouping tells whether all files are one host, or each is its own. The zero value decides by content.
type Grouping struct{ Together, Each bool }

// Select returns the hosts at paths, in order. "-" is stdin; without paths it returns this machine.
func Select(paths []string, stdin io.Reader, g Grouping) (jobs Jobs, err error) {
	if len(paths) == 0 {
		jobs.All = []Job{{"this machine", func(ctx context.Context) (*topology.Host, error) {
			return Read(ctx, Live())
		}}}
		return jobs, nil
	}
	jobs.Many = len(paths) > 1
	var files []string
	for _, p := range paths {
		list, err := List(p)
		if err != nil {
			return Jobs{}, err
		}
		if list == nil {
			list = []string{p}
		} else {
			jobs.Many = true
		}
		files = append(files, list...)
	}
	if !slices.Contains(files, "-") && (g.Together || !g.Each && OneMachine(files)) {
		if !g.Together {
			jobs.Joined = len(files)
		}
		jobs.Many = false
		jobs.All = []Job{{files[0], func(ctx context.Context) (*topology.Host, error) {
			return ReadTogether(ctx, files)
		}}}
		return jobs, nil
	}
	for _, f := range files {
		jobs.All = append(jobs.All, Job{f, func(ctx context.Context) (*topology.Host, error) {
			if f == "-" {
				return ReadStream(ctx, stdin, "standard input")
			}
			return ReadFile(ctx, f)
		}})
	}
	return jobs, nil
}

// ReadPath reads the host at a path; "-" is stdin. All files of a directory that is not a root describe one host.
func ReadPath(ctx context.Context, path string, stdin io.Reader) (*topology.Host, error) {
	if path == "-" {
		return ReadStream(ctx, stdin, "standard input")
	}
	switch list, err := List(path); {
	case err != nil:
		return nil, err
	case list != nil:
		return ReadTogether(ctx, list)
	}
	return ReadFile(ctx, path)
}
