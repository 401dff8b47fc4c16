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
	Progress *rack.Progress
}

// Look examines this machine. Without Options.Probe, KVM is tried only where the node image exists.
func Look(ctx context.Context, o Options) Report {
	d := &doctor{dirs: o.Dirs, root: os.DirFS("/"), look: exec.LookPath, probe: o.Probe, progress: o.Progress}
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
	progress *rack.Progress

	items []finding.Finding
	qemu  qemu.Driver  // what was found of it
	image *image.Image // current and whole; nil if there is none
}

func (d *doctor) report() Report {
	return Report{Ready: finding.Count(d.items, finding.Lack) == 0, Checks: d.items}
}

func (d *doctor) add(status finding.Status, id, title, evidence, fix string) {
	if status == finding.OK {
		fix = ""
	}
	d.items = append(d.items, finding.Finding{ID: id, Status: status, Title: title, Evidence: evidence, Fix: fix})
}

// run looks at everything, in the order in which up needs it.
func (d *doctor) run(ctx context.Context) {
	d.progress.Begin("QEMU")
	d.checkQEMU()
	d.progress.Begin("image")
	d.checkImage(ctx)
	d.checkPackages()
	d.progress.Begin("trial boot under KVM")
	d.checkKVM(ctx)
	d.progress.Begin("machine")
	d.checkTemplates()
	d.checkMachine()
	d.checkDirs()
	d.checkLimits()
}

func (d *doctor) checkQEMU() {
	const id, title = "qemu", "QEMU"
	binary, version, err := vm.Find()
	if binary == "" {
		d.add(finding.Lack, id, title, err.Error(), "make setup, or apt-get install qemu-system-x86")
		return
	}
	if err != nil {
		d.add(finding.Lack, id, title, binary+" "+version, err.Error())
		return
	}
	d.qemu.Binary, d.qemu.Version = binary, version
	d.add(finding.OK, id, title, binary+" "+version, "")
}

// checkImage looks for the image that up would use, and builds it if that was asked for.
func (d *doctor) checkImage(ctx context.Context) {
	const id, title, fix = "image", "node image", "up builds it, or: rackless image build"
	recipe, err := image.Node.CurrentRecipe(ctx, image.Options{})
	if err != nil {
		d.add(finding.Warn, id, title, err.Error(),
			"only Debian's packages are known; on another system the image cannot be built")
		return
	}
	if d.probe {
		o := image.Options{Cache: d.dirs.Images(), Progress: func(s string) { d.progress.Note("%s", s) }}
		if _, err := image.Node.Ensure(ctx, o); err != nil {
			d.add(finding.Lack, id, title, err.Error(), "see the lines on apt and on the cache below")
			return
		}
	}
	images, damaged, err := image.Node.List(ctx, d.dirs.Images())
	if err != nil {
		d.add(finding.Lack, id, title, err.Error(), "make the cache readable, or set RACKLESS_CACHE")
		return
	}
	for _, i := range images {
		if i.Key == recipe.Key() {
			d.image = i
			d.add(finding.OK, id, title, fmt.Sprintf("%s, whole: Debian %s, kernel %s", i.Key, recipe.Release,
				i.KernelVer), "")
			return
		}
	}
	for _, key := range damaged {
		if key == recipe.Key() {
			d.add(finding.Warn, id, title, key+" is damaged", fix+" makes it again")
			return
		}
	}
	d.add(finding.Warn, id, title, fmt.Sprintf("%s is not in %s", recipe.Key(), d.dirs.Images()), fix)
}

// checkPackages looks at what an image is built with. Once there is one, it is only needed for the next.
func (d *doctor) checkPackages() {
	status := finding.Lack
	if d.image != nil {
		status = finding.Warn
	}
	var missing []string
	for _, p := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := d.look(p); err != nil {
			missing = append(missing, p)
		}
	}
	if len(missing) > 0 {
		d.add(status, "apt", "apt and dpkg", strings.Join(missing, ", ")+" not in PATH",
			"images are built on Debian or Ubuntu; elsewhere copy a cache from such a machine (RACKLESS_CACHE)")
	} else {
		d.add(finding.OK, "apt", "apt and dpkg", "apt-get, apt-cache, dpkg-deb", "")
	}
	// The lists may be compressed: _Packages, _Packages.lz4 ...
	lists, err := fs.Glob(d.root, "var/lib/apt/lists/*_Packages*")
	switch {
	case err != nil:
		d.add(status, "apt-lists", "apt's package lists", err.Error(), "apt-get update")
	case len(lists) == 0:
		d.add(status, "apt-lists", "apt's package lists", "none in /var/lib/apt/lists", "apt-get update")
	default:
		d.add(finding.OK, "apt-lists", "apt's package lists", fmt.Sprintf("%s in /var/lib/apt/lists",
			words.Count(len(lists), "list")), "")
	}
}

// checkKVM boots the image under KVM, since /dev/kvm alone says little.
func (d *doctor) checkKVM(ctx context.Context) {
	const id, title = "kvm", "KVM"
	const slow = "nodes are emulated (TCG): everything works, more slowly"
	if _, err := fs.Stat(d.root, "dev/kvm"); errors.Is(err, fs.ErrNotExist) {
		d.add(finding.Warn, id, title, "no /dev/kvm; "+slow,
			"switch virtualisation on in the firmware, or nesting on in the hypervisor around this machine")
		return
	}
	if d.image == nil || d.qemu.Binary == "" {
		d.add(finding.Warn, id, title, "/dev/kvm exists; whether a kernel boots under it is not known without "+
			"QEMU and "+
			"the node image", "rackless image build, then again; or rackless doctor --probe")
		return
	}
	d.qemu.Image = d.image
	usable, reason, err := d.qemu.ProbeKVM(ctx, d.dirs.Cache)
	switch {
	case err != nil:
		d.add(finding.Warn, id, title, "the trial boot could not be made: "+err.Error(),
			"see the line on the cache below")
	case usable:
		d.add(finding.OK, id, title, "the node image boots under it", "")
	default:
		d.add(finding.Warn, id, title, reason+"; "+slow, "use a machine with hardware virtualisation for speed")
	}
}

func (d *doctor) checkTemplates() {
	const id, title = "templates", "templates"
	all, err := vm.Cache{Dir: d.dirs.Templates()}.List()
	if err != nil {
		d.add(finding.Warn, id, title, err.Error(), "make the cache readable, or set RACKLESS_CACHE")
		return
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
		d.add(finding.Warn, id, title, fmt.Sprintf("%d usable, %d damaged in %s", usable, damaged, d.dirs.Templates()),
			"up makes damaged ones again when it needs them; rackless image rm --all --templates removes all")
	case usable == 0:
		d.add(finding.OK, id, title, "none yet: the first up of a shape boots one, some seconds", "")
	default:
		d.add(finding.OK, id, title, fmt.Sprintf("%d for the present image and QEMU", usable), "")
	}
}

// checkMachine looks at memory and cores.
func (d *doctor) checkMachine() {
	room, err := rack.ReadRoom()
	least, machine := 2, "this machine" // a lab is two nodes at least
	if err == nil {
		if limit, used, where, ok := cgroup.Memory(d.root); ok && lab.Bytes(limit-used) < room.Available {
			room.Available, machine = lab.Bytes(max(limit-used, 0)), where
		}
	}
	switch nodes := room.Nodes; {
	case err != nil:
		d.add(finding.Lack, "memory", "memory", err.Error(), "mount /proc")
	case nodes() < least:
		d.add(finding.Lack, "memory", "memory", fmt.Sprintf("%s available by %s, room for %s",
			words.Bytes(int64(room.Available)), machine, words.Count(nodes(), "default node")),
			fmt.Sprintf("a node counts %v: free some memory, lower memory: in the lab file, or say --overcommit",
				room.PerNode))
	default:
		d.add(finding.OK, "memory", "memory", fmt.Sprintf("%s available by %s, room for %s of %v each with QEMU",
			words.Bytes(int64(room.Available)), machine, words.Count(nodes(), "default node"), room.PerNode), "")
	}
	cpus := runtime.NumCPU()
	status, fix := finding.OK, ""
	if cpus < 2 {
		status, fix = finding.Warn, "two nodes take turns on one core: use a machine with two cores or more"
	}
	d.add(status, "cpus", "cores", fmt.Sprintf("%d may be used by this process", cpus), fix)
}

// checkDirs looks at the directories, without making them.
func (d *doctor) checkDirs() {
	for _, dir := range []struct {
		id, title, path, env string
		status               finding.Status
	}{
		{"run", "running labs", d.dirs.Run, "RACKLESS_RUN", finding.Lack},
		{"cache", "cache", d.dirs.Cache, "RACKLESS_CACHE", finding.Lack},
		{"data", "results", d.dirs.Data, "RACKLESS_DATA", finding.Warn}, // only measurements need it
	} {
		if err := writable(dir.path); err != nil {
			d.add(dir.status, dir.id, dir.title, err.Error(), "set "+dir.env+" to a directory that can be written")
			continue
		}
		d.add(finding.OK, dir.id, dir.title, dir.path+" can be written", "")
	}
	names, err := d.dirs.CheckRun()
	long := 2 * lab.MaxName
	switch {
	case err != nil:
		d.add(finding.Lack, "run-path", "path of sockets", err.Error(), "set RACKLESS_RUN to another directory")
	case names < 2:
		d.add(finding.Lack, "run-path", "path of sockets", fmt.Sprintf("%s is too long: unix sockets allow 107 bytes",
			d.dirs.Run), "set RACKLESS_RUN to a shorter directory, such as /tmp/rl")
	case names < long:
		d.add(finding.Warn, "run-path", "path of sockets",
			fmt.Sprintf("%s leaves %d bytes for the names of lab and node; they may have %d", d.dirs.Run, names, long),
			"set RACKLESS_RUN to a shorter directory, or use short names")
	default:
		d.add(finding.OK, "run-path", "path of sockets", d.dirs.Run+" is short enough", "")
	}
	d.checkDisk()
}

// Disk space in bytes: an image takes 120 MiB and twice that while it is built, a template of the
// default shape 200 MiB.
const (
	diskForImage = 512 << 20
	diskForLabs  = 2 << 30
)

func (d *doctor) checkDisk() {
	dir := existing(d.dirs.Cache)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		d.add(finding.Warn, "disk", "disk of the cache", fmt.Sprintf("%s: %v", dir, err), "")
		return
	}
	free := int64(st.Bavail) * st.Bsize
	evidence := fmt.Sprintf("%s free in %s", words.Bytes(free), dir)
	switch {
	case free < diskForImage && d.image == nil:
		d.add(finding.Lack, "disk", "disk of the cache", evidence,
			fmt.Sprintf("an image takes up to %s while it is built: make room, or set RACKLESS_CACHE to another disk",
				words.Bytes(int64(diskForImage))))
	case free < diskForLabs:
		d.add(finding.Warn, "disk", "disk of the cache", evidence,
			"each shape of node takes a template of some 200 MiB; rackless image rm makes room")
	default:
		d.add(finding.OK, "disk", "disk of the cache", evidence, "")
	}
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
	rlimit := func(id, title string, which int, needed uint64, fix string) {
		var l unix.Rlimit
		if err := unix.Getrlimit(which, &l); err != nil {
			d.add(finding.Warn, id, title, err.Error(), "")
			return
		}
		// The hard limit: Go programs raise the soft one to it by themselves, and the lab's daemon is one.
		d.limit(id, title, l.Max, needed, fix)
	}
	rlimit("nofile", "open files", unix.RLIMIT_NOFILE, filesNeeded,
		"raise it: ulimit -Hn, or LimitNOFILE= of the service")
	if os.Getuid() != 0 { // root is not bound by it (setrlimit(2), RLIMIT_NPROC)
		rlimit("nproc", "processes", unix.RLIMIT_NPROC, threadsALab,
			"raise it: ulimit -u, or /etc/security/limits.conf")
	}
	if pids, where, ok := cgroup.Limit(d.root, "pids", "pids.max", "pids.max"); ok {
		d.limit("cgroup-pids", "processes by "+where, uint64(pids), threadsALab,
			"raise pids.max (TasksMax= in systemd, --pids-limit in containers)")
	}
}

func (d *doctor) limit(id, title string, have, needed uint64, fix string) {
	text := strconv.FormatUint(have, 10)
	if have == noLimitAtAll {
		text = "no limit"
	}
	if have < needed {
		d.add(finding.Warn, id, title, fmt.Sprintf("%s; a lab of %d nodes takes up to %d", text, manyNodes, needed),
			fix)
		return
	}
	d.add(finding.OK, id, title, text+", enough for "+words.Count(manyNodes, "node"), "")
}
