// Package doctor says what a machine can do as a host of emulated labs, what it lacks, and the fix.
// It looks at everything that rack.Up needs, and changes nothing.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/driver/qemu"
	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/image"
	"github.com/rackless/rackless/internal/cgroup"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm"
)

// A Report is what Look found. As JSON it is what rackless doctor prints, see docs/json.md.
type Report struct {
	Ready  bool              `json:"ready"` // nothing that up needs is lacking
	Checks []finding.Finding `json:"checks"`
}

// Options say where to look.
type Options struct {
	Dirs     rack.Dirs
	Probe    bool // build the node image if it is missing, to find out whether KVM can be used
	NoBoot   bool // no trial boot under KVM: what it would show is left open
	Progress *rack.Progress
}

// Look examines this machine. Without Options.Probe, KVM is tried only where the node image exists.
func Look(ctx context.Context, o Options) Report {
	d := &doctor{dirs: o.Dirs, root: os.DirFS("/"), look: exec.LookPath, probe: o.Probe, noBoot: o.NoBoot,
		progress: o.Progress}
	d.run(ctx)
	d.progress.End(nil)
	return d.report()
}

// A doctor looks at one machine.
type doctor struct {
	dirs     rack.Dirs
	root     fs.FS                        // "/", which tests replace
	look     func(string) (string, error) // exec.LookPath
	probe    bool
	noBoot   bool
	progress *rack.Progress

	items []finding.Finding
	qemu  qemu.Driver  // what was found of it
	image *image.Image // current and whole; nil if there is none
}

func (d *doctor) report() Report {
	return Report{Ready: finding.Count(d.items, finding.Lack) == 0, Checks: d.items}
}

// ok is the finding of a check that found what is wanted. It needs no fix.
func ok(format string, args ...any) finding.Finding {
	return finding.Finding{Status: finding.OK, Evidence: fmt.Sprintf(format, args...)}
}

func warn(evidence, fix string) finding.Finding {
	return finding.Finding{Status: finding.Warn, Evidence: evidence, Fix: fix}
}

func lack(evidence, fix string) finding.Finding {
	return finding.Finding{Status: finding.Lack, Evidence: evidence, Fix: fix}
}

func (d *doctor) add(id, title string, f finding.Finding) {
	f.ID, f.Title = id, title
	d.items = append(d.items, f)
}

// run looks at everything, in the order in which up needs it: a later check uses what an earlier one found.
func (d *doctor) run(ctx context.Context) {
	d.progress.Begin("QEMU")
	d.add("qemu", "QEMU", d.checkQEMU())
	d.progress.Begin("image")
	d.add("image", "node image", d.checkImage(ctx))
	d.add("apt", "apt and dpkg", d.checkPackages())
	d.add("apt-lists", "apt's package lists", d.checkLists())
	d.progress.Begin("trial boot under KVM")
	d.add("kvm", "KVM", d.checkKVM(ctx))
	d.progress.Begin("machine")
	d.add("templates", "templates", d.checkTemplates())
	d.add("memory", "memory", d.checkMemory())
	d.add("cpus", "cores", checkCPUs(runtime.NumCPU()))
	d.checkDirs()
	d.add("disk", "disk of the cache", d.checkDisk())
	d.checkLimits()
}

// checkQEMU notes what it finds, which the checks of KVM and of templates need.
func (d *doctor) checkQEMU() finding.Finding {
	binary, version, err := vm.Find()
	if binary == "" {
		return lack(err.Error(), "make setup, or apt-get install qemu-system-x86")
	}
	if err != nil {
		return lack(binary+" "+version, err.Error())
	}
	d.qemu.Binary, d.qemu.Version = binary, version
	return ok("%s %s", binary, version)
}

// checkImage looks for the image that up would use, and builds it if that was asked for.
func (d *doctor) checkImage(ctx context.Context) finding.Finding {
	const fix = "up builds it, or: rackless image build"
	recipe, err := image.Node.CurrentRecipe(ctx, image.Options{})
	if err != nil {
		return warn(err.Error(), "only Debian's packages are known; on another system the image cannot be built")
	}
	if d.probe {
		o := image.Options{Cache: d.dirs.Images(), Progress: func(s string) { d.progress.Note("%s", s) }}
		if _, err := image.Node.Ensure(ctx, o); err != nil {
			return lack(err.Error(), "see the lines on apt and on the cache below")
		}
	}
	images, damaged, err := image.Node.List(ctx, d.dirs.Images())
	if err != nil {
		return lack(err.Error(), "make the cache readable, or set RACKLESS_CACHE")
	}
	key := recipe.Key()
	for _, i := range images {
		if i.Key == key {
			d.image = i
			return ok("%s, whole: Debian %s, kernel %s", key, recipe.Release, i.KernelVer)
		}
	}
	if slices.Contains(damaged, key) {
		return warn(key+" is damaged", fix+" makes it again")
	}
	return warn(key+" is not in "+d.dirs.Images(), fix)
}

// toBuild is the status of what an image is built with: once there is one, it is only needed for the next.
func (d *doctor) toBuild(evidence, fix string) finding.Finding {
	if d.image != nil {
		return warn(evidence, fix)
	}
	return lack(evidence, fix)
}

// checkPackages looks for the programs that an image is built with, of which none is needed to run one.
func (d *doctor) checkPackages() finding.Finding {
	programs := []string{"apt-get", "apt-cache", "dpkg-deb"}
	missing := slices.DeleteFunc(slices.Clone(programs), func(p string) bool {
		_, err := d.look(p)
		return err == nil
	})
	if len(missing) > 0 {
		return d.toBuild(strings.Join(missing, ", ")+" not in PATH",
			"images are built on Debian or Ubuntu; elsewhere copy a cache from such a machine (RACKLESS_CACHE)")
	}
	return ok("%s", strings.Join(programs, ", "))
}

// checkLists looks for package lists: apt knows no package without them, as in a fresh container.
func (d *doctor) checkLists() finding.Finding {
	// The lists may be compressed: _Packages, _Packages.lz4 ...
	lists, err := fs.Glob(d.root, "var/lib/apt/lists/*_Packages*")
	switch {
	case err != nil:
		return d.toBuild(err.Error(), "apt-get update")
	case len(lists) == 0:
		return d.toBuild("none in /var/lib/apt/lists", "apt-get update")
	}
	return ok("%s in /var/lib/apt/lists", words.Count(len(lists), "list"))
}

// checkKVM boots the image under KVM, since /dev/kvm alone says little.
func (d *doctor) checkKVM(ctx context.Context) finding.Finding {
	const slow = "nodes are emulated (TCG): everything works, more slowly"
	if _, err := fs.Stat(d.root, "dev/kvm"); errors.Is(err, fs.ErrNotExist) {
		return warn("no /dev/kvm; "+slow,
			"switch virtualisation on in the firmware, or nesting on in the hypervisor around this machine")
	}
	if d.image == nil || d.qemu.Binary == "" {
		return warn("/dev/kvm exists; whether a kernel boots under it is not known without QEMU and the node image",
			"rackless image build, then again; or rackless doctor --probe")
	}
	if d.noBoot {
		return ok("/dev/kvm exists; rackless doctor boots the node image under it, to be sure")
	}
	d.qemu.Image = d.image
	usable, reason, err := d.qemu.ProbeKVM(ctx, d.dirs.Cache)
	switch {
	case err != nil:
		return warn("the trial boot could not be made: "+err.Error(), "see the line on the cache below")
	case usable:
		return ok("the node image boots under it")
	}
	return warn(reason+"; "+slow, "use a machine with hardware virtualisation for speed")
}

// checkTemplates counts templates for the present image and QEMU. None is no lack: the first up makes one.
func (d *doctor) checkTemplates() finding.Finding {
	all, err := vm.Cache{Dir: d.dirs.Templates()}.List()
	if err != nil {
		return warn(err.Error(), "make the cache readable, or set RACKLESS_CACHE")
	}
	usable, damaged := 0, 0
	for _, t := range all {
		switch {
		case t.Damaged != nil:
			damaged++
		case d.image != nil && t.Image == d.image.Key && t.QEMU == d.qemu.Version:
			usable++
		}
	}
	switch {
	case damaged > 0:
		return warn(fmt.Sprintf("%d usable, %d damaged in %s", usable, damaged, d.dirs.Templates()),
			"up makes damaged ones again when it needs them; rackless image rm --all --templates removes all")
	case usable == 0:
		return ok("none yet: the first up of a shape boots one, some seconds")
	}
	return ok("%d for the present image and QEMU", usable)
}

// checkMemory asks for room for a lab, which is two nodes at least. A control group may allow less than there is.
func (d *doctor) checkMemory() finding.Finding {
	room, err := rack.ReadRoom()
	if err != nil {
		return lack(err.Error(), "mount /proc")
	}
	machine := "this machine"
	if limit, used, where, limited := cgroup.Memory(d.root); limited && lab.Bytes(limit-used) < room.Available {
		room.Available, machine = lab.Bytes(max(limit-used, 0)), where
	}
	evidence := fmt.Sprintf("%s available by %s, room for %s", words.Bytes(int64(room.Available)), machine,
		words.Count(room.Nodes(), "default node"))
	if room.Nodes() < 2 {
		return lack(evidence, fmt.Sprintf("a node counts %v: free some memory, lower memory: in the lab file, or say "+
			"--overcommit", room.PerNode))
	}
	return ok("%s of %v each with QEMU", evidence, room.PerNode)
}

// checkCPUs takes one core for a warning, not a lack: labs work on one, and figures from it mean little.
func checkCPUs(n int) finding.Finding {
	evidence := fmt.Sprintf("%d may be used by this process", n)
	if n < 2 {
		return warn(evidence, "two nodes take turns on one core: use a machine with two cores or more")
	}
	return ok("%s", evidence)
}

func (d *doctor) checkDirs() {
	d.add("run", "running labs", checkDir(d.dirs.Run, "RACKLESS_RUN", finding.Lack))
	d.add("cache", "cache", checkDir(d.dirs.Cache, "RACKLESS_CACHE", finding.Lack))
	d.add("data", "results", checkDir(d.dirs.Data, "RACKLESS_DATA", finding.Warn)) // only measurements need it
	d.add("run-path", "path of sockets", d.checkSockets())
}

// checkDir looks at a directory, without making it. lacking is the status where it cannot be used.
func checkDir(path, env string, lacking finding.Status) finding.Finding {
	if err := writable(path); err != nil {
		return finding.Finding{Status: lacking, Evidence: err.Error(),
			Fix: "set " + env + " to a directory that can be written"}
	}
	return ok("%s can be written", path)
}

// checkSockets looks for room for the names of lab and node in the paths of unix sockets.
func (d *doctor) checkSockets() finding.Finding {
	names, err := d.dirs.CheckRun()
	const long = 2 * lab.MaxName
	switch {
	case err != nil:
		return lack(err.Error(), "set RACKLESS_RUN to another directory")
	case names < 2:
		return lack(d.dirs.Run+" is too long: unix sockets allow 107 bytes",
			"set RACKLESS_RUN to a shorter directory, such as /tmp/rl")
	case names < long:
		return warn(fmt.Sprintf("%s leaves %d bytes for the names of lab and node; they may have %d", d.dirs.Run, names,
			long), "set RACKLESS_RUN to a shorter directory, or use short names")
	}
	return ok("%s is short enough", d.dirs.Run)
}

// Disk space in bytes: an image takes 120 MiB and twice that while it is built, a template of the
// default shape 200 MiB.
const (
	diskForImage = 512 << 20
	diskForLabs  = 2 << 30
)

// checkDisk looks at the file system that has the cache, or will have it.
func (d *doctor) checkDisk() finding.Finding {
	dir := existing(d.dirs.Cache)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return warn(fmt.Sprintf("%s: %v", dir, err), "")
	}
	free := int64(st.Bavail) * st.Bsize
	evidence := fmt.Sprintf("%s free in %s", words.Bytes(free), dir)
	switch {
	case free < diskForImage && d.image == nil:
		return lack(evidence, fmt.Sprintf("an image takes up to %s while it is built: make room, or set "+
			"RACKLESS_CACHE to another disk", words.Bytes(int64(diskForImage))))
	case free < diskForLabs:
		return warn(evidence, "each shape of node takes a template of some 200 MiB; rackless image rm makes room")
	}
	return ok("%s", evidence)
}

// existing returns the nearest ancestor of a path that exists, or the path itself.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// writable reports why a directory cannot be written, or could not be made.
func writable(path string) error {
	dir := existing(path)
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("%s cannot be written: %w", dir, err)
	}
	return nil
}

// Needs of a lab of 64 nodes, with a margin of two: each node has a listener, a connection and an
// agent's connection in the lab's daemon, and a QEMU with some five threads.
const (
	manyNodes    = 64
	filesNeeded  = 2 * 4 * manyNodes
	threadsALab  = 2 * 6 * manyNodes
	noLimitAtAll = ^uint64(0)
)

// checkLimits looks at what bounds this process and its children.
func (d *doctor) checkLimits() {
	d.add("nofile", "open files", rlimit(unix.RLIMIT_NOFILE, filesNeeded,
		"raise it: ulimit -Hn, or LimitNOFILE= of the service"))
	if os.Getuid() != 0 { // root is not bound by it (setrlimit(2), RLIMIT_NPROC)
		d.add("nproc", "processes", rlimit(unix.RLIMIT_NPROC, threadsALab,
			"raise it: ulimit -u, or /etc/security/limits.conf"))
	}
	if pids, where, ok := cgroup.Limit(d.root, "pids", "pids.max", "pids.max"); ok {
		d.add("cgroup-pids", "processes by "+where, enough(uint64(pids), threadsALab,
			"raise pids.max (TasksMax= in systemd, --pids-limit in containers)"))
	}
}

// rlimit judges the hard limit: Go programs raise the soft one to it by themselves, and the lab's daemon is one.
func rlimit(which int, needed uint64, fix string) finding.Finding {
	var l unix.Rlimit
	if err := unix.Getrlimit(which, &l); err != nil {
		return warn(err.Error(), "")
	}
	return enough(l.Max, needed, fix)
}

// enough compares a limit with what a large lab needs. Less is a warning, since small labs fit anyway.
func enough(have, needed uint64, fix string) finding.Finding {
	text := strconv.FormatUint(have, 10)
	if have == noLimitAtAll {
		text = "no limit"
	}
	if have < needed {
		return warn(fmt.Sprintf("%s; a lab of %d nodes takes up to %d", text, manyNodes, needed), fix)
	}
	return ok("%s, enough for %s", text, words.Count(manyNodes, "node"))
}
