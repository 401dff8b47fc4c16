package emulate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/vm"
)

const agentPort = "org.qemu.guest_agent.0"

const agentChardev = "ga"

// amdModel is qemu64, the cheapest emulation, presented as an AMD processor:
//   - svm and npt give the host its own KVM, so that its guests are translated once instead of twice: under
//     KVM two of them took 106 s (examples/epyc-lab.yaml), without it more than nine minutes. QEMU emulates
//     no VMX.
//   - On AMD processors Linux needs topoext to see threads and shared L3 caches, and invtsc to trust the
//     TSC. QEMU emulates no instruction for either, but both only describe the machine: x-force-features
//     keeps them on.
//   - arat says that timers continue in idle CPUs, which is true here.
//   - With x2apic a CPU accesses its APIC by registers. With a thread for each CPU, QEMU 10.0.2 lost ends
//     of interrupts that were written to memory while another CPU mapped a device; the CPU then stayed
//     halted forever, with its timer's interrupt in service (see "info lapic").
const amdModel = "qemu64,xlevel=0x8000001e,vendor=AuthenticAMD,family=23,model=1,stepping=2,model-id=QEMU virtual " +
	"AMD CPU,x-force-features=on,topoext=on,invtsc=on,svm=on,npt=on,+arat,+x2apic"

// intelModel is qemu64 as an Intel processor: Linux reads its threads from leaf 0xb, and its shared L3 from leaf 4. It
// has no KVM.
const intelModel = "qemu64,vendor=GenuineIntel,level=0xb,+arat,+x2apic"

// cpuModel avoids amdModel if SeaBIOS could not place the devices. SeaBIOS 1.16 assumes that an AMD CPU has 40 address
// bits, and reserves 512 MiB at each port with a NIC if there is memory above 4 GiB. On a switch, beside a GPU with a
// 32-bit BAR, the reservation must fit below 4 GiB, and SeaBIOS halts with "PCI: out of 32bit address space".
func cpuModel(p *Profile) string {
	if len(p.Switches) > 0 && p.Memory() >= memoryBelow4G {
		return intelModel
	}
	return amdModel
}

// memoryBelow4G is the most that q35 can place below 4 GiB.
const memoryBelow4G = 0xb000_0000

type machine struct {
	name    string // for process lists
	dir     string // for its sockets and logs
	profile *Profile
	qemu    vm.Emulator
	accel   string // "kvm" or "tcg"
	boot    Boot
	disk    string // overlay of the root disk
	tools   string // of the second disk; "" for none
	ram     ram
	// adapters is the directory of the sockets of adapters and GPUs, or "" for a template's empty ports.
	adapters string
}

const socketSerial = "serial.sock"

var sockets = vm.Sockets{vm.SocketQMP, vm.SocketAgent, socketSerial, vm.SocketConsole}

func (m machine) vm() vm.Machine {
	return vm.Machine{Name: "host " + m.name, Binary: m.qemu.Path, Lead: m.qemu.Lead, Dir: m.dir, Sockets: sockets,
		Args: m.args()}
}

// vmWithAdapters adds the ConnectX adapters and GPUs, if any. The server of adapters maps the memory, so it is a copy
// of the template's.
func (m machine) vmWithAdapters() (vm.Machine, error) {
	if m.profile.comesLate() {
		m.adapters = m.dir
	}
	if !m.profile.hasConnectX() {
		return m.vm(), nil
	}
	var files []*os.File
	for i, n := range m.profile.NUMANodes {
		from := ""
		if m.ram.dir != "" {
			from = m.ram.file(i)
		}
		f, err := vm.NewSharedMemory(from, int64(n.Memory))
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return vm.Machine{}, err
		}
		files = append(files, f)
	}
	m.ram = ram{open: true}
	v := m.vm()
	v.SharedMemory = files
	return v, nil
}

// ram selects the memory of the NUMA nodes. Its zero value means anonymous memory.
type ram struct {
	dir   string // with files ram0, ram1 ...
	share bool   // for making a template; otherwise copy on write
	open  bool
}

func (r ram) file(node int) string { return filepath.Join(r.dir, fmt.Sprintf("ram%d", node)) }

// A Boot is the system that a host boots.
type Boot struct {
	Key    string // of its contents
	Kernel string // or GRUB wrapped as a kernel
	Initrd string // "" for none
	Append string // "" for none
	Disk   string // qcow2 image below the host's overlay, or ""
	// Environment is for commands run by Exec, as in a login of root.
	Environment []string
}

// args returns QEMU's arguments. Everything visible to the guest depends only on the profile, the accelerator and the
// boot.
func (m machine) args() []string {
	p := m.profile
	mib := func(b int64) string { return strconv.FormatInt(b>>20, 10) + "M" }
	nodes, packages := len(p.NUMANodes), p.Packages
	coresPerDie := p.Cores() / nodes
	a := []string{
		"-name", "rackless-host-" + m.name,
		"-nodefaults", "-no-user-config", "-display", "none",
		// Hosts have the HPET, unlike nodes: without it, an emulated kernel on a busy machine compared the TSC with
		// ticks that it had missed and fell back to the slow ACPI timer, and one boot of 15 hung. Interrupt remapping
		// of the IOMMU needs the I/O APIC in QEMU (kernel-irqchip=split). The chipset's other devices are unused, and
		// drivers would be loaded for them.
		"-machine", "q35,kernel-irqchip=split,vmport=off,sata=off,smbus=off,i8042=off",
		"-accel", m.accel, "-cpu", cpuModel(p),
		"-smp", fmt.Sprintf("%d,sockets=%d,dies=%d,cores=%d,threads=%d", p.CPUs(), packages, nodes/packages,
			coresPerDie, p.ThreadsPerCore),
		"-m", mib(int64(p.Memory())),
		// rackless recognizes display controllers in the place of GPUs by the vendor.
		"-smbios", "type=1,manufacturer=" + topology.VendorEmulated + ",product=emulated " + p.Name,
	}
	perNode := coresPerDie * p.ThreadsPerCore
	for i, n := range p.NUMANodes {
		backend := fmt.Sprintf("memory-backend-ram,id=ram%d,size=%s", i, mib(int64(n.Memory)))
		switch id := fmt.Sprintf("ram%d", i); {
		case m.ram.open:
			backend = vm.MemoryFile(id, int64(n.Memory), sockets.SharedMemory(i), true)
		case m.ram.dir != "":
			backend = vm.MemoryFile(id, int64(n.Memory), m.ram.file(i), m.ram.share)
		}
		a = append(a, "-object", backend, "-numa", fmt.Sprintf("node,nodeid=%d,cpus=%d-%d,memdev=ram%d", i, i*perNode,
			(i+1)*perNode-1, i))
	}
	for i, row := range p.Distances {
		for j, d := range row {
			if i != j {
				a = append(a, "-numa", fmt.Sprintf("dist,src=%d,dst=%d,val=%d", i, j, d))
			}
		}
	}
	if m.boot.Kernel != "" {
		a = append(a, "-kernel", m.boot.Kernel)
	}
	if m.boot.Initrd != "" {
		a = append(a, "-initrd", m.boot.Initrd)
	}
	if m.boot.Append != "" {
		a = append(a, "-append", m.boot.Append)
	}
	a = append(a,
		"-chardev", sockets.Chardev("qmp", vm.SocketQMP), "-mon", "chardev=qmp,mode=control",
		"-chardev", sockets.Chardev("serial", socketSerial)+",logfile="+
			vm.Escape(filepath.Join(m.dir, vm.FileConsole))+",logappend=on", "-serial", "chardev:serial",
		"-device", "intel-iommu,intremap=on,eim=on,caching-mode=on,device-iotlb=on",
		// Devices that no real machine has get fixed slots, so that profile changes do not move them. QEMU's main loop
		// polls each queue of a virtio device on every timer of every CPU: with 31 ports and 16 queues per disk it used
		// a whole core.
		"-device", "virtio-serial-pci,id=vser,max_ports=3,bus=pcie.0,addr=0x1",
		"-chardev", sockets.Chardev(agentChardev, vm.SocketAgent),
		"-device", "virtserialport,bus=vser.0,chardev="+agentChardev+",name="+agentPort,
		"-chardev", sockets.Chardev("console", vm.SocketConsole),
		"-device", "virtconsole,bus=vser.0,chardev=console",
		"-device", "virtio-rng-pci,bus=pcie.0,addr=0x2",
		"-device", "vmgenid,guid=auto",
	)
	if m.disk != "" {
		a = append(a, "-drive", "if=none,id=root,format=qcow2,discard=unmap,file="+vm.Escape(m.disk),
			"-device", "virtio-blk-pci,drive=root,num-queues=1,bus=pcie.0,addr=0x3,bootindex=1")
	}
	if m.tools != "" {
		a = append(a, "-drive", "if=none,id=tools,format=raw,readonly=on,file="+vm.Escape(m.tools),
			"-device", "virtio-blk-pci,drive=tools,num-queues=1,bus=pcie.0,addr=0x4")
	}
	if p.Screen {
		// The firmware would run a ROM.
		a = append(a, "-device", "VGA,bus=pcie.0,addr=0x5,romfile=")
	}
	return append(a, p.deviceArgs(m.adapters)...)
}

// deviceArgs follows the order of addresses. The firmware numbers buses depth first, and gives the root bus of a root
// complex (pxb-pcie) its specified number, so a port on that bus leads to the next number.
func (p *Profile) deviceArgs(adapters string) []string {
	d := deviceList{hubs: p.hubs(), adapters: adapters}
	for _, r := range p.roots() {
		bus := int(r.address.Bus)
		rc, port := fmt.Sprintf("rc%02x", bus-1), fmt.Sprintf("port%02x", bus)
		d.device("pxb-pcie,id=%s,bus=pcie.0,bus_nr=%d,numa_node=%d", rc, bus-1, *r.node)
		d.port("pcie-root-port,id=%s,bus=%s"+r.reserve(), port, rc)
		switch {
		case r.sw != nil:
			up := fmt.Sprintf("up%02x", bus)
			d.device("x3130-upstream,id=%s,bus=%s", up, port)
			for i, b := range r.behind {
				down := fmt.Sprintf("down%02x", b.address.Bus)
				late := ""
				if b.comesLate() {
					late = latePort
				}
				d.port("xio3130-downstream,id=%s,bus=%s,addr=0x%x"+late, down, up, i)
				d.card(b, down, false)
			}
		case r.bridge != nil:
			id := fmt.Sprintf("bridge%02x", bus)
			d.device("pcie-pci-bridge,id=%s,bus=%s", id, port)
			for _, b := range r.behind {
				d.card(b, id, true)
			}
		default:
			d.card(r.device, port, false)
		}
	}
	return d.args
}

// latePort is for ports whose device only a clone has: power is on, and the guest gets no hotplug event.
const latePort = ",hotplug=off,power_controller_present=off"

// In MiB.
const (
	adapterRoom = 32 // a function of a ConnectX
	displayRoom = 16 // a display controller in the place of a GPU
	gpuRoom     = 2  // the 32-bit registers of a GPU and of its audio function
)

func (d device) connectX() int {
	if d.nic == nil || d.nic.Model == "" {
		return 0
	}
	return d.nic.functions()
}

// vram returns the size of a GPU's memory.
func (d device) vram() lab.Bytes {
	if d.gpu == nil {
		return 0
	}
	return d.gpu.Memory
}

// comesLate reports whether only a clone has the device.
func (d device) comesLate() bool { return d.connectX() > 0 || d.vram() > 0 }

// reserve returns options that reserve room for the registers and memory of what a clone has. The guest removes a
// switch with such devices before it is saved, and rescans it later, placing the 32-bit registers of GPUs in the
// non-prefetchable window.
//
// The firmware aligns a window to 1 MiB, so memory of a GPU is sure to fit into one of twice its size.
func (r root) reserve() string {
	if n := r.connectX(); n > 0 {
		return fmt.Sprintf("%s,pref64-reserve=%dM", latePort, n*adapterRoom)
	}
	if n := r.vram(); n > 0 {
		return fmt.Sprintf("%s,pref64-reserve=%dM,mem-reserve=%dM", latePort, 2*n/lab.MiB, gpuRoom)
	}
	late, displays := lab.Bytes(0), 0
	for _, b := range r.behind {
		late += lab.Bytes(b.connectX())*adapterRoom + b.vram()/lab.MiB
		if b.gpu != nil && !b.gpu.hasVRAM() {
			displays++
		}
	}
	if late == 0 {
		return ""
	}
	// Generous: the kernel rounds windows up.
	return fmt.Sprintf(",pref64-reserve=%dM,mem-reserve=%dM", 2*late+adapterRoom, 2*(displays+1)*displayRoom)
}

// lateSwitches returns the upstream ports of switches with devices that only a clone has.
func (p *Profile) lateSwitches() (upstream []string) {
	for _, r := range p.roots() {
		if r.sw != nil && slices.ContainsFunc(r.behind, device.comesLate) {
			upstream = append(upstream, r.address.String())
		}
	}
	return upstream
}

func (p *Profile) hubs() map[string]int {
	var names []string
	for _, n := range p.NICs {
		if n.Model == "" {
			names = append(names, n.Wires...)
		}
	}
	slices.Sort(names)
	hubs := make(map[string]int)
	for i, n := range slices.Compact(names) {
		hubs[n] = i
	}
	return hubs
}

type deviceList struct {
	args     []string
	hubs     map[string]int
	adapters string
	chassis  int
	ends     int // number of wire ends
}

func (d *deviceList) device(format string, args ...any) {
	d.args = append(d.args, "-device", fmt.Sprintf(format, args...))
}

// port gives each port its own slot; QEMU refuses two with the same chassis and slot.
func (d *deviceList) port(format string, args ...any) {
	d.chassis++
	d.device(format+fmt.Sprintf(",chassis=%d", d.chassis), args...)
}

func (d *deviceList) card(c device, bus string, conventional bool) {
	if c.nic != nil {
		d.nic(c.nic, bus, conventional)
		return
	}
	g := c.gpu
	switch {
	case !g.hasVRAM():
		d.device("secondary-vga,bus=%s,addr=0x%x.0,multifunction=%s", bus, g.Address.Device, vm.OnOff(g.Audio))
	case d.adapters == "":
		return
	default:
		d.args = append(d.args, "-device", vm.VFIOUser{ID: gpuID(g), Bus: bus, Multi: g.Audio,
			Socket: gpuSocket(d.adapters, g)}.Device())
	}
	if g.Audio {
		multi := ""
		if g.hasVRAM() {
			// A kernel that finds the device later needs the bit in both functions to put them into one IOMMU group.
			multi = ",multifunction=on"
		}
		d.device("intel-hda,bus=%s,addr=0x%x.1"+multi, bus, g.Address.Device)
	}
}

// nic adds a ConnectX in another process if Model is set, else an 82576 (igb) if it has virtual functions, an 82540
// (e1000) on a conventional bus, or an 82574 (e1000e). A boot ROM would cost the firmware seconds.
func (d *deviceList) nic(n *NIC, bus string, conventional bool) {
	if n.Model != "" {
		for i := range n.functions() {
			if d.adapters != "" {
				d.args = append(d.args, "-device", vm.VFIOUser{ID: portID(n, i), Bus: bus, Function: i,
					Multi: n.functions() > 1, Socket: adapterSocket(d.adapters, n, i)}.Device())
			}
		}
		return
	}
	model := "e1000e"
	switch {
	case n.VFs > 0:
		model = "igb"
	case conventional:
		model = "e1000"
	}
	for i := range n.Ports {
		dev := fmt.Sprintf("%s,id=%s,bus=%s,addr=0x%x.%d,mac=%s,romfile=", model, portID(n, i), bus, n.Address.Device,
			i, mac(n, i))
		if n.Ports > 1 {
			dev += ",multifunction=on"
		}
		// With ARI the kernel finds further functions by this number, which QEMU otherwise leaves 0.
		if n.Ports > 1 && i == 0 {
			dev += ",x-pcie-ari-nextfn-1=on"
		}
		if i < len(n.Wires) {
			end := fmt.Sprintf("end%d", d.ends)
			d.ends++
			d.args = append(d.args, "-netdev", fmt.Sprintf("hubport,id=%s,hubid=%d", end, d.hubs[n.Wires[i]]))
			dev += ",netdev=" + end
		}
		d.device("%s", dev)
	}
}

func portID(n *NIC, port int) string {
	a := n.Address
	return fmt.Sprintf("nic%02x-%02x-%d", a.Bus, a.Device, port)
}

// mac derives the address of a port from its place. Hosts share no network, so their addresses may be equal.
func mac(n *NIC, port int) string {
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", n.Address.Bus, n.Address.Device, port)
}

func (p *Profile) unplugged() []string {
	var ids []string
	for i := range p.NICs {
		n := &p.NICs[i]
		for j := len(n.Wires); j < n.Ports && n.Model == ""; j++ {
			ids = append(ids, portID(n, j))
		}
	}
	return ids
}
