// Package inspect reads a machine into a topology.Host: the live one, or any tree of its /sys and /proc.
//
// A missing file is normal: containers, virtual machines and kernels without NUMA lack many. What
// is missing leaves its field unset; what is there and cannot be read or understood is also listed
// in Host.Unread, with the reason. Nothing is guessed without saying so.
//
// Dumps of other tools are read by the packages hwlocxml, nccl, smi and lspci below this one, which
// Open chooses by the content of a file. Directories and archives become file systems in inspect/tree.
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

// A Source is where a machine is read from.
type Source struct {
	// Name is what messages and the provenance call it: a file or a directory; "/" for the live machine.
	Name string
	// FS is the machine's root directory. Reading links (fs.ReadLinkFS) must work, and links that
	// stand for directories must be followed.
	FS fs.FS
	// Run runs a command on the machine, or gives its recorded output; nil where there are none.
	// fs.ErrNotExist stands for a program that is not there.
	Run func(ctx context.Context, argv ...string) ([]byte, error)
	// Live is set where FS is the root directory of the machine that runs rackless.
	Live bool
}

// ErrNoMachine is the error of Read when the tree has neither CPUs nor memory nor PCI devices.
var ErrNoMachine = errors.New("nothing of a machine found: no sys/devices, no sys/bus/pci/devices, no proc/cpuinfo")

// Read reads a machine. An error means that nothing could be made of the source at all, or that ctx
// ended; whatever else goes wrong is in Host.Unread.
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
	r.readIRQs() // which of them matter depends on the devices and the isolated CPUs
	h.Complete()
	h.Provenance.Filled = h.Parts()
	return h, nil
}

// A Job is one host to be read.
type Job struct {
	Name string // for headings and messages
	Read func(ctx context.Context) (*topology.Host, error)
}

// Jobs are the hosts at some paths.
type Jobs struct {
	All    []Job
	Many   bool // several hosts were asked for, even if it is one in the end
	Joined int  // how many files were taken for texts of one host, unasked

	Close func() // releases what the jobs share; nil where that is nothing
}

// Done releases what the jobs share.
func (j *Jobs) Done() {
	if j.Close != nil {
		j.Close()
	}
}

// Grouping says which files are of one host. The zero value leaves it to their content.
type Grouping struct{ Together, Each bool }

// Select returns the hosts at paths, in their order. "-" is stdin, and no path this machine.
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
		// A directory is one machine where it has /sys and /proc, else a heap of files.
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

// ReadPath reads the host at a path; "-" is stdin. A directory without a machine in it is one host,
// told by all its files.
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
