package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/topology"
)

// A Process is a process of this machine at one moment. A nil part is one that could not be read; Unread says why.
type Process struct {
	PID      int
	Threads  []Thread  // by ID
	Mappings []Mapping // by address
	// VFIO are the device files below /dev/vfio that it holds open: of groups ("/dev/vfio/12") and
	// of devices ("/dev/vfio/devices/vfio0"), sorted.
	VFIO   []string
	Unread []string // "PATH: why"
}

// A root is the root directory of a machine, with what could not be read below it.
type root struct {
	FS     fs.FS
	unread *[]string
}

func (r root) failed(err error) { *r.unread = append(*r.unread, reason(err)) }

// reason writes an error as "PATH: why".
func reason(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return "/" + strings.TrimPrefix(p.Path, "/") + ": " + p.Err.Error()
	}
	return err.Error()
}

// text reads a file. What is not there is passed by in silence.
func (r root) text(name string) (string, bool) {
	b, err := fs.ReadFile(r.FS, name)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.failed(err)
		}
		return "", false
	}
	return string(b), true
}

// list reads a list of CPUs.
func (r root) list(name string) *topology.CPUSet { return r.set(name, topology.ParseCPUSet) }

// set reads a set by a parser: the kernel shows lists in some files and masks in others.
func (r root) set(name string, parse func(string) (topology.CPUSet, error)) *topology.CPUSet {
	text, ok := r.text(name)
	if !ok {
		return nil
	}
	set, err := parse(strings.TrimSpace(text))
	if err != nil {
		r.failed(fmt.Errorf("/%s: %w", name, err))
		return nil
	}
	return &set
}

// numbered returns the entries of a directory that are numbers, in rising order.
func (r root) numbered(dir string) ([]int, error) {
	entries, err := fs.ReadDir(r.FS, dir)
	if err != nil {
		return nil, err
	}
	var all []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n >= 0 && strconv.Itoa(n) == e.Name() {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

// ReadProcess reads a process of the machine with the root directory fsys. Memory and open files of
// others than one's own can be read by root only. The error is that the process is not there.
func ReadProcess(fsys fs.FS, pid int) (*Process, error) {
	p := &Process{PID: pid}
	r := root{fsys, &p.Unread}
	dir := "proc/" + strconv.Itoa(pid)
	threads, err := r.threads(pid)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	p.Threads = threads
	if text, ok := r.text(dir + "/numa_maps"); ok {
		p.Mappings = r.mappings(dir, text)
	}
	entries, err := fs.ReadDir(r.FS, dir+"/fd")
	if err != nil {
		r.failed(err)
		return p, nil
	}
	p.VFIO = []string{}
	for _, e := range entries {
		target, err := fs.ReadLink(r.FS, dir+"/fd/"+e.Name())
		if err != nil { // closed meanwhile
			continue
		}
		// /dev/vfio/vfio is the container, which every process that uses VFIO holds: it says nothing of a device.
		rest, ok := strings.CutPrefix(target, "/dev/vfio/")
		if ok && rest != "vfio" && !slices.Contains(p.VFIO, target) {
			p.VFIO = append(p.VFIO, target)
		}
	}
	slices.Sort(p.VFIO)
	return p, nil
}

// mappings reads memory; nil where that is not possible.
func (r root) mappings(dir, text string) []Mapping {
	all, err := ParseNUMAMaps(text)
	if err != nil {
		r.failed(fmt.Errorf("/%s/numa_maps: %w", dir, err))
		return nil
	}
	if maps, ok := r.text(dir + "/maps"); ok {
		if err := AddSizes(all, maps); err != nil {
			r.failed(fmt.Errorf("/%s/maps: %w", dir, err))
		}
	}
	return all
}

// threads reads the threads of a process. Those that end meanwhile are left out.
func (r root) threads(pid int) ([]Thread, error) {
	dir := "proc/" + strconv.Itoa(pid) + "/task"
	ids, err := r.numbered(dir)
	if err != nil {
		return nil, err
	}
	all := []Thread{}
	for _, id := range ids {
		base := dir + "/" + strconv.Itoa(id)
		// Two files, and the thread may end between them: only one that has both is there.
		stat, err1 := fs.ReadFile(r.FS, base+"/stat")
		status, err2 := fs.ReadFile(r.FS, base+"/status")
		if err1 != nil || err2 != nil {
			continue
		}
		t, err := ParseThread(string(stat), string(status))
		if err != nil {
			r.failed(fmt.Errorf("/%s: %w", base, err))
			continue
		}
		all = append(all, t)
	}
	return all, nil
}

// ReadRunning reads what runs on the machine with the root directory fsys. The error is that ctx ended.
func ReadRunning(ctx context.Context, fsys fs.FS) (*Running, error) {
	run := &Running{}
	r := root{fsys, &run.Unread}
	if pids, err := r.numbered("proc"); err == nil {
		run.Threads = []Thread{}
		for _, pid := range pids {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			// A process that ended meanwhile disturbs nobody.
			if threads, err := r.threads(pid); err == nil {
				run.Threads = append(run.Threads, threads...)
			}
		}
		slices.SortFunc(run.Threads, func(a, b Thread) int { return cmp.Compare(a.TID, b.TID) })
	} else {
		r.failed(err)
	}
	run.Interrupts = r.interrupts()
	run.Cgroups = r.cgroups()
	run.Workqueues = r.set("sys/devices/virtual/workqueue/cpumask", topology.ParseCPUMask)
	if text, ok := r.text("proc/mounts"); ok {
		run.HugeMounts = ParseHugeMounts(text)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return run, nil
}

// interrupts reads what has a number, with the CPUs that serve it. The effective set is what the
// hardware does (4.15); the set asked for is what older kernels show.
func (r root) interrupts() []Interrupt {
	text, ok := r.text("proc/interrupts")
	if !ok {
		return nil
	}
	all, err := ParseInterrupts(text)
	if err != nil {
		r.failed(fmt.Errorf("/proc/interrupts: %w", err))
		return nil
	}
	for i := range all {
		dir := "proc/irq/" + strconv.Itoa(all[i].Number)
		set := r.list(dir + "/effective_affinity_list")
		if set == nil {
			set = r.list(dir + "/smp_affinity_list")
		}
		if set != nil {
			all[i].CPUs = *set
		}
	}
	return all
}

// cgroupRoots are where version 2 is mounted: alone, or beside version 1.
var cgroupRoots = []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"}

// cgroupDepth is how deep partitions are looked for: a partition's parent is one too, or the root,
// or has exclusive CPUs.
const cgroupDepth = 3

// cgroups reads the control groups that cpusets can keep apart; nil where the controller is not in version 2.
func (r root) cgroups() []Cgroup {
	for _, base := range cgroupRoots {
		controllers, ok := r.text(base + "/cgroup.controllers")
		if !ok {
			continue
		}
		if !slices.Contains(strings.Fields(controllers), "cpuset") {
			return nil
		}
		all := []Cgroup{}
		r.cgroupsBelow(base, "", cgroupDepth, &all)
		return all
	}
	return nil
}

// cgroupsBelow walks the groups below a path. It leaves out those without the cpuset controller, which use the CPUs of
// their parent: what the parent may use is judged already.
func (r root) cgroupsBelow(base, below string, depth int, all *[]Cgroup) {
	entries, err := fs.ReadDir(r.FS, path.Join(base, below))
	if err != nil {
		// A group may be removed at any time. It is noted all the same: that nothing is in it is not known.
		r.failed(err)
		return
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		name := path.Join(below, e.Name())
		dir := path.Join(base, name)
		set := r.list(dir + "/cpuset.cpus.effective")
		if set == nil { // the controller is not handed down this far
			if below == "" {
				// A group without a set of its own uses that of its parent, the root: all.
				set = r.list(base + "/cpuset.cpus.effective")
			}
			if set == nil {
				continue
			}
		}
		g := Cgroup{Path: name, CPUs: *set}
		if text, ok := r.text(dir + "/cpuset.cpus.partition"); ok {
			g.Partition = strings.TrimSpace(text)
		}
		events, _ := r.text(dir + "/cgroup.events")
		g.Populated = strings.Contains(events, "populated 1")
		*all = append(*all, g)
		if depth > 1 {
			r.cgroupsBelow(base, name, depth-1, all)
		}
	}
}
