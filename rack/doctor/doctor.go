// Package doctor checks whether a machine can run emulated labs, and how to fix it if not. It changes nothing.
package doctor

import (
	"cmp"
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

	"github.com/rackless/rackless/internal/cgroup"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/distro"
	"github.com/rackless/rackless/vm/image"
	"github.com/rackless/rackless/vm/qemu"
)

// A Report is the output of rackless doctor, see docs/json.md.
type Report struct {
	Part          // for up
	Emulated Part `json:"emulated_hosts"` // for emulate, in addition
	RealHost Part `json:"real_host"`      // for prepare, and for up with host devices
}

// Options change how Look examines the machine.
type Options struct {
	Dirs     rack.Dirs
	Probe    bool // build a missing node image, to find out whether KVM works
	NoBoot   bool // no trial boot under KVM; its result stays open
	Progress *rack.Progress
}

// Look examines this machine. Without Options.Probe it tries KVM only if the node image exists, because building takes
// a minute and downloads packages.
func Look(ctx context.Context, o Options) Report {
	root := os.DirFS("/")
	d := &doctor{dirs: o.Dirs, root: root, system: distro.Of(root), look: exec.LookPath, probe: o.Probe,
		noBoot: o.NoBoot, progress: o.Progress}
	d.run(ctx)
	r := Report{part(d.items), d.emulated(ctx), d.realHost()}
	d.progress.End(nil)
	return r
}

type doctor struct {
	dirs     rack.Dirs
	root     fs.FS                        // "/", replaced by tests
	system   distro.System                // of root
	look     func(string) (string, error) // exec.LookPath
	probe    bool
	noBoot   bool
	progress *rack.Progress

	items []finding.Finding
	qemu  qemu.Driver  // set by checkQEMU
	image *image.Image // of this version, complete; or nil
}

func ok(format string, args ...any) finding.Finding {
	return finding.Finding{Status: finding.OK, Evidence: fmt.Sprintf(format, args...)}
}

// warn means that labs work, but slower or smaller.
func warn(evidence, fix string) finding.Finding {
	return finding.Finding{Status: finding.Warn, Evidence: evidence, Fix: fix}
}

// lack means that labs cannot work.
func lack(evidence, fix string) finding.Finding {
	return finding.Finding{Status: finding.Missing, Evidence: evidence, Fix: fix}
}

// add's ids must not change, because programs identify checks by them.
func (d *doctor) add(id, title string, f finding.Finding) {
	f.ID, f.Title = id, title
	d.items = append(d.items, f)
}

// run's order matters: later checks use earlier results.
func (d *doctor) run(ctx context.Context) {
	d.progress.Begin("QEMU")
	d.add("qemu", "QEMU", d.checkQEMU(ctx))
	d.add("connectx", "ConnectX NICs", d.checkConnectX(ctx))
	d.add("home", "shared /home", d.checkHome())
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

// checkQEMU also records QEMU for later checks. Without an installed QEMU, one in the cache will do, which up unpacks
// if apt has it.
func (d *doctor) checkQEMU(ctx context.Context) finding.Finding {
	binary, version, err := vm.Find()
	if err == nil {
		d.qemu.Binary, d.qemu.Version = binary, version
		return ok("%s %s", binary, version)
	}
	img, cacheErr := image.QEMU.Find(ctx, image.Options{Cache: d.dirs.Images()})
	switch {
	case cacheErr == nil:
		e := img.Emulator()
		d.qemu.Binary, d.qemu.Version, d.qemu.Lead = e.Path, e.Version, e.Lead
		return ok("QEMU %s is in the cache", e.Version)
	case d.unpacks():
		return ok("up unpacks a QEMU of Debian 13 into the cache (%s); nothing is installed", qemuDownload)
	}
	return lack(err.Error(), d.install(image.QEMUPackage(runtime.GOARCH), "QEMU 8.0 or newer")+", or "+image.ImportFix)
}

func (d *doctor) unpacks() bool {
	_, err := d.look("apt-get")
	return err == nil && d.system.Debian()
}

func (d *doctor) builds() bool {
	lists, err := fs.Glob(d.root, "var/lib/apt/lists/*_debian_dists_*_Packages*")
	return d.system.Debian() || err == nil && len(lists) > 0
}

const qemuDownload = "52 MB to download"

// install takes Debian's name of a package.
func (d *doctor) install(name, what string) string {
	return cmp.Or(d.system.Install(name), "install "+what)
}

// checkConnectX is only for labs with adapters.
func (d *doctor) checkConnectX(ctx context.Context) finding.Finding {
	have := vm.Emulator{Path: d.qemu.Binary, Version: d.qemu.Version, Lead: d.qemu.Lead}
	if have.Path != "" && have.HasVFIOUser() {
		return ok("QEMU %s has vfio-user", have.Version)
	}
	img, err := image.QEMU.Find(ctx, image.Options{Cache: d.dirs.Images()})
	switch {
	case err == nil:
		return ok("QEMU %s is in the cache", img.KernelVer)
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, image.ErrDamaged):
		return warn(err.Error(), "make the cache readable, or set RACKLESS_CACHE")
	case d.unpacks():
		return ok("up of a lab with them gets a QEMU of Debian 13 into the cache (%s)", qemuDownload)
	}
	return warn("they need QEMU 10.1 or newer with vfio-user: nodes have soft RoCE instead", image.ImportFix)
}

// checkHome is only for labs with home: shared.
func (d *doctor) checkHome() finding.Finding {
	installed := vm.Emulator{Path: d.qemu.Binary, Version: d.qemu.Version}
	switch {
	case installed.Path == "":
		return warn("not known without QEMU", "see the line above")
	case !installed.Has("virtio-9p-pci"):
		return warn("QEMU "+installed.Version+" has no virtio-9p-pci: labs with home: shared do not come up",
			"install a QEMU that was built with virtfs, such as Debian's")
	}
	return ok("QEMU %s has virtio-9p-pci", installed.Version)
}

func (d *doctor) checkImage(ctx context.Context) finding.Finding {
	fix := image.ImportFix
	if d.builds() {
		fix = "up builds it, or: rackless image build"
	}
	o := image.Options{Cache: d.dirs.Images(), Progress: d.progress.Say, Watch: d.progress.Watch}
	if d.probe {
		if _, err := image.Node.Ensure(ctx, o); err != nil {
			return lack(err.Error(), "see the lines on apt and on the cache below")
		}
	}
	img, err := image.Node.Find(ctx, o)
	switch {
	case err == nil:
		d.image = img
		return ok("%s, whole: Debian %s, kernel %s", img.Key, img.Recipe.Release, img.KernelVer)
	case errors.Is(err, image.ErrDamaged):
		return warn(img.Dir+" is damaged", fix)
	case errors.Is(err, fs.ErrNotExist):
		return warn("none in "+d.dirs.Images(), fix)
	}
	return lack(err.Error(), "make the cache readable, or set RACKLESS_CACHE")
}

// toBuild is a warning if an image exists, because labs then work.
func (d *doctor) toBuild(evidence, fix string) finding.Finding {
	if d.image != nil {
		return warn(evidence, fix)
	}
	return lack(evidence, fix)
}

func (d *doctor) checkPackages() finding.Finding {
	programs := []string{"apt-get", "apt-cache", "dpkg-deb"}
	missing := slices.DeleteFunc(slices.Clone(programs), func(p string) bool {
		_, err := d.look(p)
		return err == nil
	})
	if len(missing) > 0 {
		return d.toBuild(strings.Join(missing, ", ")+" not in PATH: "+d.system.Name+" makes no images", image.ImportFix)
	}
	return ok("%s", strings.Join(programs, ", "))
}

// checkLists fails in a fresh container.
func (d *doctor) checkLists() finding.Finding {
	// They may be compressed: _Packages.lz4 ...
	lists, err := fs.Glob(d.root, "var/lib/apt/lists/*_Packages*")
	switch {
	case err != nil:
		return d.toBuild(err.Error(), "apt-get update")
	case len(lists) == 0 && d.system.Debian():
		return d.toBuild("none in /var/lib/apt/lists", "apt-get update")
	case !d.builds():
		return d.toBuild("none of Debian, of whose packages images are made", image.ImportFix)
	}
	return ok("%s in /var/lib/apt/lists", words.Count(len(lists), "list"))
}

// checkKVM boots the image: nested KVM may be broken, or the user may not open /dev/kvm. Labs work without KVM, so the
// result is at most a warning.
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
	d.qemu.Image = d.image
	usable, reason, known := d.qemu.KnownKVM(d.dirs.Cache)
	var err error
	if !known && d.noBoot {
		return warn("/dev/kvm exists; whether a kernel boots under it is not known yet",
			"rackless doctor boots the node image under it")
	}
	if !known {
		usable, reason, err = d.qemu.ProbeKVM(ctx, d.dirs.Cache)
	}
	switch {
	case err != nil:
		return warn("the trial boot could not be made: "+err.Error(), "see the line on the cache below")
	case usable:
		return ok("the node image boots under it")
	}
	return warn(reason+"; "+slow, "use a machine with hardware virtualisation for speed")
}

// checkTemplates accepts none: the first up makes one.
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

// checkMemory is for two nodes. A control group may allow less than the machine has.
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

func checkCPUs(n int) finding.Finding {
	evidence := fmt.Sprintf("%d may be used by this process", n)
	if n < 2 {
		return warn(evidence, "two nodes take turns on one core: use a machine with two cores or more")
	}
	return ok("%s", evidence)
}

func (d *doctor) checkDirs() {
	d.add("run", "running labs", checkDir(d.dirs.Run, "RACKLESS_RUN", finding.Missing))
	d.add("cache", "cache", checkDir(d.dirs.Cache, "RACKLESS_CACHE", finding.Missing))
	d.add("data", "results", checkDir(d.dirs.Data, "RACKLESS_DATA", finding.Warn)) // only measurements need it
	d.add("run-path", "path of sockets", d.checkSockets())
}

// checkDir creates nothing. lacking is the status of a directory that cannot be written.
func checkDir(path, env string, lacking finding.Status) finding.Finding {
	if err := writable(path); err != nil {
		return finding.Finding{Status: lacking, Evidence: err.Error(),
			Fix: "set " + env + " to a directory that can be written"}
	}
	return ok("%s can be written", path)
}

// checkSockets checks that names fit into the paths of unix sockets, at most 107 bytes (unix(7), sun_path).
func (d *doctor) checkSockets() finding.Finding {
	names, err := rack.CheckRun(d.dirs)
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

// In bytes, for several templates. An image takes 120 MiB, and twice that while it is built; a template of the default
// shape takes 200 MiB.
const (
	diskForImage = 512 << 20
	diskForLabs  = 2 << 30
)

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

// existing returns the nearest existing ancestor.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// writable uses access(2), because doctor changes nothing.
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

// The needs of 64 nodes, with a margin of two. Each has a listener, a connection and an agent's connection in the lab's
// daemon, and about five threads in its QEMU.
const (
	manyNodes    = 64
	filesNeeded  = 2 * 4 * manyNodes
	threadsALab  = 2 * 6 * manyNodes
	noLimitAtAll = ^uint64(0)
)

// checkLimits is about this process, whose limits nodes and the daemon inherit.
func (d *doctor) checkLimits() {
	d.add("nofile", "open files", rlimit(unix.RLIMIT_NOFILE, filesNeeded,
		"raise it: ulimit -Hn, or LimitNOFILE= of the service"))
	if os.Getuid() != 0 { // does not bind root (setrlimit(2), RLIMIT_NPROC)
		d.add("nproc", "processes", rlimit(unix.RLIMIT_NPROC, threadsALab,
			"raise it: ulimit -u, or /etc/security/limits.conf"))
	}
	if pids, where, ok := cgroup.Limit(d.root, "pids", "pids.max", "pids.max"); ok {
		d.add("cgroup-pids", "processes by "+where, enough(uint64(pids), threadsALab,
			"raise pids.max (TasksMax= in systemd, --pids-limit in containers)"))
	}
}

// rlimit checks a hard limit, to which Go programs raise the soft one.
func rlimit(which int, needed uint64, fix string) finding.Finding {
	var l unix.Rlimit
	if err := unix.Getrlimit(which, &l); err != nil {
		return warn(err.Error(), "")
	}
	return enough(l.Max, needed, fix)
}

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
