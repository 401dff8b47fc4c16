package inspect

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/topology"
)

func (r *reader) sayUnread(unread *[]string) {
	*unread = lists.Map(r.h.Unread, func(u topology.Unread) string { return u.Path + ": " + u.Why })
}

func (r *reader) names(dir string) []string {
	names := r.dir(dir)
	if names == nil && !r.exists(dir) {
		r.unread(dir, fs.ErrNotExist.Error())
	}
	return names
}

// ReadProcess reads a process below the root directory fsys. Only root can read memory and open files of other users'
// processes. It returns an error if the process does not exist.
func ReadProcess(fsys fs.FS, pid int) (*facts.Process, error) {
	p := &facts.Process{PID: pid}
	r := &reader{fs: fsys, h: &topology.Host{}}
	defer r.sayUnread(&p.Unread)
	dir := "proc/" + strconv.Itoa(pid)
	if _, err := fs.Stat(fsys, dir+"/task"); err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	p.Threads = append([]facts.Thread{}, r.threads(pid)...)
	p.Mappings = r.mappings(dir)
	names := r.names(dir + "/fd")
	if names == nil {
		return p, nil
	}
	p.VFIO = []string{}
	for _, name := range names {
		target, _ := r.link(dir + "/fd/" + name) // closed meanwhile
		// Every process with VFIO has /dev/vfio/vfio, the container, open.
		rest, ok := strings.CutPrefix(target, "/dev/vfio/")
		if ok && rest != "vfio" && !slices.Contains(p.VFIO, target) {
			p.VFIO = append(p.VFIO, target)
		}
	}
	slices.Sort(p.VFIO)
	return p, nil
}

func (r *reader) mappings(dir string) []facts.Mapping {
	var all []facts.Mapping
	if list := parsed(r, dir+"/numa_maps", facts.ParseNUMAMaps); list != nil {
		all = *list
	}
	if maps, ok := r.text(dir + "/maps"); ok && all != nil {
		if err := facts.AddSizes(all, maps); err != nil {
			r.unread(dir+"/maps", err.Error())
		}
	}
	return all
}

// threads skips threads that end meanwhile.
func (r *reader) threads(pid int) []facts.Thread {
	var all []facts.Thread
	dir := "proc/" + strconv.Itoa(pid) + "/task"
	for _, id := range r.numbers(dir, "") {
		base := dir + "/" + strconv.Itoa(id)
		// The thread may end between the reads.
		stat, err1 := fs.ReadFile(r.fs, base+"/stat")
		status, err2 := fs.ReadFile(r.fs, base+"/status")
		if err1 != nil || err2 != nil {
			continue
		}
		t, err := facts.ParseThread(string(stat), string(status))
		if err != nil {
			r.unread(base, err.Error())
			continue
		}
		all = append(all, t)
	}
	return all
}

// ReadRunning reads the activity on a machine. It returns an error only if ctx is done.
func ReadRunning(ctx context.Context, fsys fs.FS) (*facts.Running, error) {
	run := &facts.Running{}
	r := &reader{fs: fsys, h: &topology.Host{}}
	defer r.sayUnread(&run.Unread)
	if r.names("proc") != nil {
		run.Threads = []facts.Thread{}
	}
	for _, pid := range r.numbers("proc", "") {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		run.Threads = append(run.Threads, r.threads(pid)...)
	}
	slices.SortFunc(run.Threads, func(a, b facts.Thread) int { return cmp.Compare(a.TID, b.TID) })
	run.Interrupts = r.interrupts()
	run.Cgroups = r.cgroups()
	run.Workqueues = r.mask("sys/devices/virtual/workqueue/cpumask")
	if text, ok := r.text("proc/mounts"); ok {
		run.HugeMounts = facts.ParseHugeMounts(text)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return run, nil
}

func (r *reader) interrupts() []facts.Interrupt {
	list := parsed(r, "proc/interrupts", facts.ParseInterrupts)
	if list == nil {
		return nil
	}
	all := *list
	for i := range all {
		all[i].CPUs = topology.CPUSet{}
		if cpus := r.irqCPUs(all[i].Number); cpus != nil {
			all[i].CPUs = *cpus
		}
	}
	return all
}

// Version 2 may be beside version 1.
var cgroupRoots = []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"}

// A partition's parent is also a partition, or the root, or has exclusive CPUs.
const cgroupDepth = 3

// cgroups returns nil if the controller is not in version 2.
func (r *reader) cgroups() []facts.Cgroup {
	for _, base := range cgroupRoots {
		controllers, ok := r.text(base + "/cgroup.controllers")
		if !ok {
			continue
		}
		if !slices.Contains(strings.Fields(controllers), "cpuset") {
			return nil
		}
		all := []facts.Cgroup{}
		r.cgroupsBelow(base, "", cgroupDepth, &all)
		return all
	}
	return nil
}

// cgroupsBelow skips groups without the cpuset controller, which use their parent's CPUs.
func (r *reader) cgroupsBelow(base, below string, depth int, all *[]facts.Cgroup) {
	for _, name := range r.subdirs(path.Join(base, below)) {
		name = path.Join(below, name)
		dir := path.Join(base, name)
		set := r.list(dir + "/cpuset.cpus.effective")
		if set == nil && below == "" { // the root does not delegate
			// A top group uses all CPUs.
			set = r.list(base + "/cpuset.cpus.effective")
		}
		if set == nil {
			continue
		}
		*all = append(*all, facts.Cgroup{Path: name, CPUs: *set, Partition: r.word(dir + "/cpuset.cpus.partition"),
			Populated: strings.Contains(r.word(dir+"/cgroup.events"), "populated 1")})
		if depth > 1 {
			r.cgroupsBelow(base, name, depth-1, all)
		}
	}
}
