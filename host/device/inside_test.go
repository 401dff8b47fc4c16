package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

func testInside(t *testing.T) {
	for _, module := range []string{"igb", "igbvf", "bochs", "nvme"} { // as udev does
		run(t, "modprobe", module)
	}
	t.Run("functions and virtual functions go to lab nodes and come back as they were", insideRoundTrip)
	t.Run("virtual functions of before come back with their addresses and drivers", insideVirtualBefore)
	t.Run("a rollback after a reboot in which the udev rule was first", insideAfterReboot)
	t.Run("what is in use stays", insideInUse)
	t.Run("guards see what the host needs", insideGuards)
	t.Run("cut off anywhere", insideFaults)
}

func run(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}

func write(t *testing.T, path, value string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

func live(ctx context.Context) (*topology.Host, error) { return inspect.Read(ctx, inspect.Live()) }

const (
	insideNIC    = "0000:01:00.0"
	insidePF     = "0000:02:00.0"
	insideScreen = "0000:03:00.0"
)

func insideSteps(t *testing.T, o Options) []change.Step {
	t.Helper()
	h, err := live(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p, l := testPlan(t, []plan.PFCount{{PF: insidePF, Count: 3, Lab: 2}},
		wish{"a", []plan.NodeDevice{wholeCard(plan.KindNIC, insideNIC), wholeCard(plan.KindGPU, insideScreen)}},
		wish{"b", []plan.NodeDevice{vfCard(insidePF, 1), vfCard(insidePF, 2)}})
	if o.Inspect == nil {
		o.Inspect = live
	}
	steps, err := Steps(p, l, h, o)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

func (b *bench) same(before []string) {
	b.t.Helper()
	if diff := cmp.Diff(before, snapshot(b.t)); diff != "" {
		b.t.Fatalf("the machine is not as it was (-before +after):\n%s", diff)
	}
}

func newInside(t *testing.T) *bench { return newBench(t, &change.System{Root: "/"}, Kinds()) }

// volatile matches files that change on an unchanged machine: counters, times, numbers that the kernel assigns in
// order, and registers that a driver's reset leaves undefined.
var volatile = regexp.MustCompile(
	`/(statistics|msi_irqs|power|wakeup|queues|ptp|hwmon|i2c-\d+|graphics|drm|vtcon\d+|config|irq|ifindex|iflink|` +
		`carrier_(changes|up_count|down_count)|tx_queue_len|aer_\w+|uevent|consistent_dma_mask_bits|carrier|speed|` +
		`duplex|operstate|dormant|testing|resource\d.*|local_cpu.*|rom)(/|$)`)

var numbered = regexp.MustCompile(`/eth\d+`)

func snapshot(t testing.TB) []string {
	t.Helper()
	var lines []string
	walk := func(top string) {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if volatile.MatchString(strings.TrimPrefix(path, top)) {
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
			// Without udev, a port that comes back gets the first free name.
			name := numbered.ReplaceAllString(path, "/ethN")
			switch {
			case d.Type()&fs.ModeSymlink != 0:
				to, err := os.Readlink(path)
				lines = append(lines, name+" -> "+to)
				return err
			case d.IsDir():
				lines = append(lines, name+"/")
			case d.Type().IsRegular():
				b, err := os.ReadFile(path)
				if err != nil {
					b = []byte("error")
				}
				lines = append(lines, fmt.Sprintf("%s = %q", name, b))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range []string{insideNIC, insidePF, insideScreen} {
		dir, err := filepath.EvalSymlinks(pciDevices + "/" + a)
		if err != nil {
			t.Fatal(err)
		}
		walk(dir)
	}
	all, err := filepath.Glob(pciDevices + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		driver, _ := os.Readlink(path + "/driver")
		lines = append(lines, path+" driver "+driver)
	}
	walk("/etc")
	modules, err := os.ReadFile("/proc/modules")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(modules)) {
		lines = append(lines, "module "+strings.Fields(line)[0])
	}
	vfs, err := netlinkNetwork{}.VFs(t.Context(), insidePort(t))
	if err != nil {
		t.Fatal(err)
	}
	for i, vf := range vfs {
		lines = append(lines, fmt.Sprintf("vf %d: %s spoofchk %v trust %v vlan %v at most %d Mb/s", i, vf.MAC,
			*vf.SpoofChk, *vf.Trust, *vf.VLAN, *vf.MaxRate))
	}
	slices.Sort(lines)
	return lines
}

func linkUp(t *testing.T, port string) {
	t.Helper()
	run(t, "ip", "link", "set", port, "up")
	for range 1200 { // for an emulated machine on a busy host
		if carrier, err := os.ReadFile("/sys/class/net/" + port + "/carrier"); err == nil && string(carrier) == "1\n" {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s has no link", port)
}

func insidePort(t testing.TB) string {
	t.Helper()
	port, err := insideFunction(insidePF).port()
	if err != nil || port == "" {
		t.Fatalf("port of %s: %q, %v", insidePF, port, err)
	}
	return port
}

func insideFunction(address string) function {
	a, err := topology.ParsePCIAddr(address)
	if err != nil {
		panic(err)
	}
	return function{&change.System{Root: "/"}, realKernel(), a}
}

func insideRoundTrip(t *testing.T) {
	b := newInside(t)
	steps := insideSteps(t, Options{})
	before := snapshot(t)
	b.must(b.make(steps))
	for _, a := range []string{insideNIC, insideScreen} {
		if driver, err := insideFunction(a).driver(); err != nil || driver != vfioPCI {
			t.Errorf("driver of %s: %q, %v; want vfio-pci", a, driver, err)
		}
	}
	pf := insideFunction(insidePF)
	st, err := pf.sriov(t.Context())
	b.must(err)
	var got []string
	for _, vf := range st.VFs {
		got = append(got, fmt.Sprintf("%s %s trust %v spoofchk %v", vf.Driver, vf.Settings.MAC, *vf.Settings.Trust,
			*vf.Settings.SpoofChk))
	}
	want := []string{"igbvf", "vfio-pci", "vfio-pci"}
	macs := steps[slices.IndexFunc(steps, func(s change.Step) bool { return s.Op.Kind() == kindSRIOV })].Op.(*SRIOV).VFs
	if len(got) != 3 || !strings.HasPrefix(got[0], want[0]) {
		t.Fatalf("virtual functions: %q; the first is the host's, with igbvf", got)
	}
	for i, lab := range macs {
		if line := fmt.Sprintf("vfio-pci %s trust true spoofchk false", lab.Settings.MAC); got[i+1] != line {
			t.Errorf("virtual function %d: %q, want %q", i+1, got[i+1], line)
		}
	}
	if mtu, err := b.s.Number(netFile(insidePort(t), "mtu")); err != nil || mtu != 4200 {
		t.Errorf("MTU of the port: %d, %v; want 4200", mtu, err)
	}
	groups, err := os.ReadDir("/dev/vfio")
	b.must(err)
	if len(groups) != 5 { // four functions and "vfio"
		t.Errorf("/dev/vfio has %v, want four groups", groups)
	}
	b.inPlace(steps)
	b.must(b.rollback())
	b.same(before)
}

func giveAddresses(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	pf := insideFunction(insidePF)
	write(t, pf.path(fileCount), "2")
	port := insidePort(t)
	linkUp(t, port) // igb accepts a rate only on a port with a link
	network := netlinkNetwork{}
	for _, set := range []struct {
		index   int
		setting VFSetting
		to      VFSettings
	}{
		{0, SettingMAC, VFSettings{MAC: "02:00:00:00:00:aa"}}, {0, SettingTrust, VFSettings{Trust: new(true)}},
		{1, SettingMAC, VFSettings{MAC: "02:00:00:00:00:bb"}}, {1, SettingSpoofChk, VFSettings{SpoofChk: new(false)}},
		{1, SettingVLAN, VFSettings{VLAN: new(7), QoS: new(3)}},
		{1, SettingRate, VFSettings{MinRate: new(0), MaxRate: new(100)}},
	} {
		if err := network.SetVF(ctx, port, set.index, set.setting, set.to); err != nil {
			t.Fatal(err)
		}
	}
	vf, err := pf.vf(1)
	if err != nil {
		t.Fatal(err)
	}
	if driver, err := (function{pf.s, pf.k, vf}).driver(); err != nil {
		t.Fatal(err)
	} else if driver != "" {
		write(t, pciDrivers+"/"+driver+"/unbind", vf.String())
	}
}

func insideVirtualBefore(t *testing.T) {
	b := newInside(t)
	giveAddresses(t)
	defer write(t, insideFunction(insidePF).path(fileCount), "0")
	steps := insideSteps(t, Options{})
	before := snapshot(t)
	b.must(b.make(steps))
	b.must(b.rollback())
	b.same(before)
}

func insideAfterReboot(t *testing.T) {
	b := newInside(t)
	before := snapshot(t)
	b.must(b.make(insideSteps(t, Options{})))
	// As after a reboot, when the udev rule has made vfio-pci the first driver.
	bootAgain(t)
	pf := insideFunction(insidePF)
	write(t, pf.path(fileCount), "0")
	write(t, netFile(insidePort(t), "mtu"), "1500")
	write(t, netFile(insidePort(t), "flags"), "0x1002")
	b.must(b.rollback())
	b.same(before)
}

func bootAgain(t *testing.T) {
	t.Helper()
	const id = "/proc/sys/kernel/random/boot_id"
	other := filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(other, []byte("0b5a1d2e-7d6f-4c8b-9a3e-1f2d3c4b5a69\n"), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(other, id, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(id, 0); err != nil {
			t.Error(err)
		}
	})
}

func insideInUse(t *testing.T) {
	b := newInside(t)
	before := snapshot(t)
	b.must(b.make(insideSteps(t, Options{})))
	pf := insideFunction(insidePF)
	vf, err := pf.vf(1)
	b.must(err)
	var open []*os.File
	for _, f := range []function{insideFunction(insideNIC), {pf.s, pf.k, vf}} {
		path, err := f.vfioFile()
		b.must(err)
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		b.must(err)
		open = append(open, file)
	}
	err = b.rollback()
	for _, want := range []string{insideNIC + " is in use: device.test (", "number 1 cannot go: " + vf.String() +
		" is in use: device.test ("} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rollback while groups are open: %v; want %q", err, want)
		}
	}
	if driver, err := insideFunction(insideNIC).driver(); err != nil || driver != vfioPCI {
		t.Errorf("driver of the NIC in use: %q, %v", driver, err)
	}
	for _, f := range open {
		b.must(f.Close())
	}
	b.must(b.rollback())
	b.same(before)
}

func insideGuards(t *testing.T) {
	b := newInside(t)
	nic, err := insideFunction(insideNIC).port()
	b.must(err)
	up := func() {
		run(t, "ip", "addr", "add", "192.0.2.2/24", "dev", nic)
		run(t, "ip", "link", "set", nic, "up")
		run(t, "ip", "route", "add", "default", "via", "192.0.2.1", "dev", nic)
	}
	down := func() {
		run(t, "ip", "addr", "flush", "dev", nic)
		run(t, "ip", "link", "set", nic, "down")
	}
	up()
	b.refuses(insideSteps(t, Options{}), insideNIC+" carries the default route ("+nic+", ipv4)",
		nic+" has address 192.0.2.2")
	addresses, err := netlinkNetwork{}.Addresses(t.Context())
	b.must(err)
	if !slices.ContainsFunc(addresses, func(a Address) bool {
		return a.Netdev == nic && a.Addr.String() == "192.0.2.2"
	}) {
		t.Errorf("addresses %v lack 192.0.2.2 of %s", addresses, nic)
	}
	if through, err := (netlinkNetwork{}).RouteTo(t.Context(), addressOf("198.51.100.7")); err != nil ||
		!slices.Equal(through, []string{nic}) {
		t.Errorf("route: %v, %v; want %s", through, err, nic)
	}
	down()

	h, err := live(t.Context())
	b.must(err)
	disk := h.Storage[slices.IndexFunc(h.Storage, func(d topology.Disk) bool { return d.Name == "nvme0n1" })]
	refused := func(what, want string) {
		t.Helper()
		err := newGuards(Options{Inspect: live, YesReally: true},
			realKernel()).whole(&Driver{Address: *disk.PCI})(t.Context(), b.s)
		if err == nil || !strings.Contains(err.Error(), disk.PCI.String()+want) {
			t.Errorf("guard of a disk %s: %v; want %q", what, err, want)
		}
	}
	const root = "/tmp/root"
	b.must(os.Mkdir(root, 0o755))
	run(t, "/bin/busybox", "mount", "-t", "ext4", "/dev/nvme0n1", root)
	refused("that is mounted", " has disk nvme0n1 on it, which is mounted at "+root+": umount first")
	insideRoot(t, root, func() {
		refused("that is the root", " has the root disk nvme0n1 on it: the host runs from it")
	})
	run(t, "/bin/busybox", "umount", root)
	run(t, "/bin/busybox", "mkswap", "/dev/nvme0n1")
	run(t, "/bin/busybox", "swapon", "/dev/nvme0n1")
	refused("with swap", " has disk nvme0n1 with swap on it")
	run(t, "/bin/busybox", "swapoff", "/dev/nvme0n1")
	g := newGuards(Options{Inspect: live}, realKernel())
	file, err := os.Open("/dev/nvme0n1")
	b.must(err)
	err = g.whole(&Driver{Address: *disk.PCI})(t.Context(), b.s)
	if err == nil || !strings.Contains(err.Error(), "device.test ("+fmt.Sprint(os.Getpid())+") has /dev/nvme0n1 open") {
		t.Errorf("guard of a disk that a process has open: %v", err)
	}
	b.must(file.Close())
	b.must(g.whole(&Driver{Address: *disk.PCI})(t.Context(), b.s))

	screen := insideFunction("0000:00:02.0").a
	err = g.whole(&Driver{Address: screen})(t.Context(), b.s)
	if err == nil || !strings.Contains(err.Error(), screen.String()+
		" is the host's console: the firmware shows its messages on it (boot_vga), frame buffer fb0") {
		t.Errorf("guard of the console: %v", err)
	}
	really := newGuards(Options{Inspect: live, YesReally: true}, realKernel())
	b.must(really.whole(&Driver{Address: screen})(t.Context(), b.s))

	before := snapshot(t)
	b.must(b.make([]change.Step{{Op: &Driver{Address: screen}, What: "the console",
		Guard: really.whole(&Driver{Address: screen})}}))
	b.must(b.rollback())
	run(t, "rmmod", "vfio_pci", "vfio_pci_core", "vfio_virqfd", "irqbypass", "vfio")
	b.same(before)

	pf := insideFunction(insidePF)
	write(t, pf.path(fileCount), "2")
	vf, err := pf.vf(0)
	b.must(err)
	vfPort, err := function{pf.s, pf.k, vf}.port()
	b.must(err)
	run(t, "ip", "addr", "add", "203.0.113.5/24", "dev", vfPort)
	b.refuses(insideSteps(t, Options{}), "virtual function 0 of "+insidePF+": "+vf.String()+" is in use: "+vfPort+
		" has address 203.0.113.5")
	write(t, pf.path(fileCount), "0")
}

func insideRoot(t *testing.T, dir string, do func()) {
	t.Helper()
	for _, fs := range []string{"/proc", "/sys", "/dev"} {
		run(t, "/bin/busybox", "mkdir", "-p", dir+fs)
		run(t, "/bin/busybox", "mount", "--bind", fs, dir+fs)
	}
	old, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := errors.Join(unix.Chroot(dir), unix.Chdir("/")); err != nil {
		t.Fatal(err)
	}
	do()
	if err := errors.Join(old.Chdir(), unix.Chroot(".")); err != nil {
		t.Fatal(err)
	}
	for _, fs := range []string{"/proc", "/sys", "/dev"} {
		run(t, "/bin/busybox", "umount", dir+fs)
	}
}

func addressOf(text string) netip.Addr { return netip.MustParseAddr(text) }
