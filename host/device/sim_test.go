package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/machinetest"
	"github.com/rackless/rackless/machine/topology"
)

// sim reacts to writes as the kernel does, as observed in the machine of machine_test.go.
type sim struct {
	t    testing.TB
	s    *change.System
	k    *kernel
	net  *simNetwork
	host *topology.Host

	natives  map[topology.PCIAddr]string
	modules  map[string]string
	needs    map[string][]string
	refuses  map[string]error // errors of writes, by file
	programs []string
}

const (
	simGPU    = "0000:41:00.0"
	simAudio  = "0000:41:00.1"
	simNIC    = "0000:61:00.0"
	simPF     = "0000:81:00.0"
	simDisk   = "0000:01:00.0"
	simPort   = "0000:40:01.0"
	simScreen = "0000:02:00.0"
	simTotal  = 8
)

func addr(text string) topology.PCIAddr {
	a, err := topology.ParsePCIAddr(text)
	if err != nil {
		panic(err)
	}
	return a
}

func newSim(t testing.TB) *sim {
	t.Helper()
	m := &sim{
		t: t, natives: map[topology.PCIAddr]string{}, refuses: map[string]error{},
		modules: map[string]string{
			vfioPCI: "vfio_pci", "igb": "igb", "igbvf": "igbvf", "nvme": "nvme", "amdgpu": "amdgpu",
			"snd_hda_intel": "snd_hda_intel", "ast": "ast",
			"nvidia": "nvidia",
		},
		needs: map[string][]string{"vfio_pci": {"vfio_pci_core", "vfio_virqfd", "irqbypass", "vfio"},
			"vfio_iommu_type1": {"vfio"}},
	}
	root := machinetest.MemoryDir(t)
	m.s = &change.System{Root: root, Run: m.program}
	m.net = &simNetwork{m: m, vfs: map[int]VFSettings{}, routes: map[netip.Addr][]string{}}
	m.k = &kernel{net: m.net, write: m.write, patience: time.Millisecond}
	tree := machinetest.New()
	m.host = &topology.Host{}
	for i, f := range []machinetest.Function{
		{Addr: simPort, Root: "pci0000:40", Class: "0x060400", ID: "1022:1453", Driver: "pcieport", Port: "root port",
			Group: 40},
		{Addr: simGPU, Above: []string{simPort}, Root: "pci0000:40", Class: "0x030000", ID: "1002:740f",
			Driver: "amdgpu", Group: 41},
		{Addr: simAudio, Above: []string{simPort}, Root: "pci0000:40", Class: "0x040300", ID: "1002:ab28",
			Driver: "snd_hda_intel", Group: 41},
		{Addr: simNIC, Root: "pci0000:60", Class: "0x020000", ID: "8086:1521", Driver: "igb", Group: 61},
		{Addr: simPF, Root: "pci0000:80", Class: "0x020000", ID: "8086:10c9", Driver: "igb", Group: 81},
		{Addr: simDisk, Root: "pci0000:00", Class: "0x010802", ID: "144d:a808", Driver: "nvme", Group: 1},
		{Addr: simScreen, Root: "pci0000:00", Class: "0x030000", ID: "1a03:2000", Driver: "ast", Group: 2},
	} {
		f.Node = 0
		f.Files = map[string]string{"modalias": "pci:" + f.ID, "d3cold_allowed": "1"}
		switch f.Addr {
		case simScreen:
			f.Files["boot_vga"] = "1"
		case simGPU:
			f.Files["boot_vga"] = "0"
		case simPF:
			f.Files[fileTotal], f.Files[fileCount], f.Files[fileAutoprobe] = strconv.Itoa(simTotal), "0", "1"
		}
		dir := tree.AddFunction(f)
		a := addr(f.Addr)
		m.natives[a] = f.Driver
		d := topology.PCIDevice{Address: a, Driver: f.Driver, DriverKnown: true, IOMMUGroup: &f.Group}
		var vendor, device topology.ID16
		if _, err := fmt.Sscanf(f.ID, "%04x:%04x", &vendor, &device); err != nil {
			t.Fatal(err)
		}
		class, err := topology.ParseID24(f.Class)
		if err != nil {
			t.Fatal(err)
		}
		d.Vendor, d.Device, d.Class = &vendor, &device, &class
		if f.Port != "" {
			d.Bridge = &topology.Bridge{Port: f.Port}
		}
		if f.Addr == simPF {
			d.SRIOV = &topology.SRIOV{Total: new(simTotal), Enabled: new(0), Offset: new(0x80), Stride: new(2),
				Autoprobe: new(true)}
		}
		if f.Driver == "igb" {
			tree.AddPort(dir, machinetest.Port{Netdev: fmt.Sprintf("eno%d", i), MAC: "02:00:00:00:00:01", MTU: 1500,
				Mbps: 1000})
			tree.File(dir+"/net/"+fmt.Sprintf("eno%d", i)+"/flags", "0x1002")
		}
		m.host.PCI = append(m.host.PCI, d)
	}
	tree.File("proc/sys/kernel/osrelease", "6.1.0-test")
	tree.File("proc/cmdline", "quiet intel_iommu=on iommu=pt")
	tree.File("lib/modules/6.1.0-test/modules.builtin", "kernel/drivers/pci/pcie/portdrv.ko")
	tree.EmptyDir("sys/kernel/iommu_groups")
	tree.EmptyDir("dev/vfio")
	tree.EmptyDir("etc/modprobe.d")
	tree.EmptyDir("etc/udev/rules.d")
	m.unpack(tree)
	for driver, module := range m.modules {
		if driver != vfioPCI && driver != "nvidia" {
			m.load(module)
		}
	}
	return m
}

func (m *sim) unpack(tree *machinetest.Tree) {
	m.t.Helper()
	files := tree.FS()
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path := m.s.Path(name)
		switch {
		case d.IsDir():
			return os.MkdirAll(path, 0o755)
		case d.Type()&fs.ModeSymlink != 0:
			to, err := files.ReadLink(name)
			if err != nil {
				return err
			}
			return os.Symlink(to, path)
		}
		data, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(path, data, 0o644)
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

// put acts as the kernel or an administrator, not through the System.
func (m *sim) put(path, text string) {
	m.t.Helper()
	full := m.s.Path(path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(text+"\n"),
		0o644)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *sim) link(path, to string) {
	m.t.Helper()
	full := m.s.Path(path)
	dir, err := filepath.EvalSymlinks(filepath.Dir(full))
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(filepath.Dir(full), 0o755)
		dir = filepath.Dir(full)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	root, err := filepath.EvalSymlinks(m.s.Root)
	if err != nil {
		m.t.Fatal(err)
	}
	dir = strings.Replace(dir, root, m.s.Root, 1)
	rel, err := filepath.Rel(dir, m.s.Path(to))
	if err != nil {
		m.t.Fatal(err)
	}
	if err := os.Symlink(rel, full); err != nil {
		m.t.Fatal(err)
	}
}

func (m *sim) gone(path string) {
	m.t.Helper()
	if err := os.RemoveAll(m.s.Path(path)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *sim) function(address string) function { return function{m.s, m.k, addr(address)} }

func (m *sim) driverOf(a topology.PCIAddr) string {
	m.t.Helper()
	driver, err := function{m.s, m.k, a}.driver()
	if err != nil {
		m.t.Fatal(err)
	}
	return driver
}

func (m *sim) write(s *change.System, path, value string) error {
	if s.Fault != nil {
		s.Fault(fmt.Sprintf("write %q to %s", value, path))
	}
	if err := m.refuses[path]; err != nil {
		return err
	}
	if _, err := os.Stat(s.Path(path)); err != nil && !strings.HasPrefix(path, pciDrivers) {
		return err
	}
	name := filepath.Base(path)
	switch {
	case name == "driver_override":
		if value = strings.TrimSuffix(value, "\n"); value == "" {
			value = "(null)"
		}
		m.put(path, value)
	case name == "unbind" && strings.HasPrefix(path, pciDrivers):
		a := addr(value)
		if m.driverOf(a) != filepath.Base(filepath.Dir(path)) {
			return syscall.ENODEV
		}
		m.unbind(a)
	case name == "bind" && strings.HasPrefix(path, pciDrivers):
		return m.bind(addr(value), filepath.Base(filepath.Dir(path)))
	case name == "drivers_probe":
		return m.probe(addr(value))
	case name == fileCount:
		n, err := strconv.Atoi(value)
		if err != nil {
			return syscall.EINVAL
		}
		return m.setCount(addr(filepath.Base(filepath.Dir(path))), n)
	default:
		m.put(path, value)
	}
	return nil
}

func (m *sim) unbind(a topology.PCIAddr) {
	driver := m.driverOf(a)
	if driver == "" {
		return
	}
	f := function{m.s, m.k, a}
	m.gone(f.path("driver"))
	m.gone(pciDrivers + "/" + driver + "/" + a.String())
	switch driver {
	case vfioPCI:
		group, err := f.group()
		if err != nil {
			m.t.Fatal(err)
		}
		m.gone("/dev/vfio/" + group)
	case "igbvf":
		m.gone(f.path("net"))
	}
}

func (m *sim) bind(a topology.PCIAddr, driver string) error {
	f := function{m.s, m.k, a}
	override, err := f.override()
	if err != nil {
		m.t.Fatal(err)
	}
	// If there is an override, the kernel matches only that. vfio-pci has no IDs of its own.
	if !m.s.Exists(pciDrivers+"/"+driver) || m.driverOf(a) != "" || override != "" && override != driver ||
		override == "" && m.natives[a] != driver {
		return syscall.ENODEV
	}
	if pf, err := m.s.LinkName(f.path("physfn")); err == nil && pf != "" && override == "" {
		if on, err := m.s.Value(m.function(pf).path(fileAutoprobe)); err != nil || on == "0" {
			return syscall.ENODEV
		}
	}
	m.link(f.path("driver"), pciDrivers+"/"+driver)
	m.link(pciDrivers+"/"+driver+"/"+a.String(), pciDevices+"/"+a.String())
	switch driver {
	case vfioPCI:
		group, err := f.group()
		if err != nil {
			m.t.Fatal(err)
		}
		m.put("/dev/vfio/"+group, "")
	case "igbvf":
		m.put(f.path(fmt.Sprintf("net/v%02x%x/mtu", a.Device, a.Function)), "1500")
	}
	return nil
}

func (m *sim) probe(a topology.PCIAddr) error {
	driver, err := function{m.s, m.k, a}.override()
	if err != nil {
		return err
	}
	if driver == "" {
		driver = m.natives[a]
	}
	if driver != "" && m.driverOf(a) == "" {
		_ = m.bind(a, driver) // drivers_probe succeeds even without a matching driver
	}
	return nil
}

// setCount puts the virtual functions at devices 0x10 and up, each in its own group.
func (m *sim) setCount(pf topology.PCIAddr, n int) error {
	f := function{m.s, m.k, pf}
	now, err := f.number(fileCount)
	if err != nil {
		return err
	}
	if m.driverOf(pf) == "" || m.driverOf(pf) == vfioPCI {
		return syscall.ENOENT
	}
	if n > 0 && now > 0 {
		return syscall.EBUSY
	}
	if n > simTotal {
		return syscall.ERANGE
	}
	for i := range now {
		a := m.vfAddr(pf, i)
		m.unbind(a)
		group, err := function{m.s, m.k, a}.group()
		if err != nil {
			return err
		}
		m.gone("/sys/kernel/iommu_groups/" + group)
		m.gone(f.path("virtfn" + strconv.Itoa(i)))
		m.gone("/sys/devices/pci0000:80/" + a.String())
		m.gone(pciDevices + "/" + a.String())
		delete(m.net.vfs, i)
	}
	m.put(f.path(fileCount), strconv.Itoa(n))
	for i := range n {
		a := m.vfAddr(pf, i)
		m.natives[a] = "igbvf"
		dir := "/sys/devices/pci0000:80/" + a.String()
		for name, text := range map[string]string{
			"vendor": "0x8086", "device": "0x10ca", "class": "0x020000", "driver_override": "(null)",
			"modalias": "pci:8086:10ca",
		} {
			m.put(dir+"/"+name, text)
		}
		m.link(pciDevices+"/"+a.String(), dir)
		m.link(dir+"/physfn", "/sys/devices/pci0000:80/"+pf.String())
		group := fmt.Sprintf("/sys/kernel/iommu_groups/%d", 100+i)
		if err := os.MkdirAll(m.s.Path(group+"/devices"), 0o755); err != nil {
			return err
		}
		m.link(dir+"/iommu_group", group)
		m.link(group+"/devices/"+a.String(), dir)
		m.link(f.path("virtfn"+strconv.Itoa(i)), dir)
		m.net.vfs[i] = VFSettings{
			MAC: "00:00:00:00:00:00", VLAN: new(0), QoS: new(0), VLANProto: new(0x8100), MinRate: new(0),
			MaxRate:  new(0),
			SpoofChk: new(true), Trust: new(false), LinkState: new(0),
		}
		if on, err := m.s.Value(f.path(fileAutoprobe)); err == nil && on == "1" {
			_ = m.probe(a)
		}
	}
	return nil
}

func (m *sim) vfAddr(pf topology.PCIAddr, i int) topology.PCIAddr {
	pf.Device, pf.Function = uint8(0x10+i/4), uint8(i%4*2)
	return pf
}

func (m *sim) process(pid int, comm string, open ...string) {
	dir := "/proc/" + strconv.Itoa(pid)
	m.put(dir+"/comm", comm)
	for i, path := range open {
		full := m.s.Path(fmt.Sprintf("%s/fd/%d", dir, i+3))
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.Symlink(path, full)); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *sim) inspect(context.Context) (*topology.Host, error) { return m.host, nil }

func (m *sim) tree() map[string]string {
	m.t.Helper()
	all := map[string]string{}
	root, err := filepath.EvalSymlinks(m.s.Root)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, top := range []string{"/sys", "/dev", "/etc"} {
		err := filepath.WalkDir(m.s.Path(top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(path, m.s.Root)
			switch {
			case d.Type()&fs.ModeSymlink != 0:
				// The kernel writes links in one way and a test in another.
				to, err := filepath.EvalSymlinks(path)
				all[name] = strings.TrimPrefix(to, root)
				return err
			case d.IsDir():
				all[name] = "directory"
			default:
				var b []byte
				b, err = os.ReadFile(path)
				all[name] = string(b)
			}
			return err
		})
		if err != nil {
			m.t.Fatal(err)
		}
	}
	for i, vf := range m.net.vfs {
		all[fmt.Sprintf("vf %d", i)] = describeVF(vf)
	}
	return all
}

func describeVF(vf VFSettings) string {
	var numbers []int
	for _, setting := range []*int{vf.VLAN, vf.QoS, vf.MinRate, vf.MaxRate, vf.LinkState} {
		number := -1
		if setting != nil {
			number = *setting
		}
		numbers = append(numbers, number)
	}
	spoofChk := vf.SpoofChk != nil && *vf.SpoofChk
	trust := vf.Trust != nil && *vf.Trust
	return fmt.Sprintf("%s vlan %d qos %d rate %d-%d spoofchk %v trust %v state %d", vf.MAC, numbers[0], numbers[1],
		numbers[2], numbers[3], spoofChk, trust, numbers[4])
}
