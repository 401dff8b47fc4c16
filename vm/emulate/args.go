package emulate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/vm"
)

// agentPort is the name by which qemu-ga finds its virtio-serial port.
const agentPort = "org.qemu.guest_agent.0"

// agentChardev is QEMU's name of the socket behind that port.
const agentChardev = "ga"

// amdModel is qemu64, the cheapest emulation, presented as an AMD processor:
//   - With svm and npt the host has a KVM of its own, so that its guests are translated once and not
//     twice. Guests that the host's QEMU translated did not come up in
//     nine minutes; under KVM two of them took 106 s (examples/epyc-lab.yaml). QEMU emulates no VMX.
//   - On AMD processors Linux needs topoext to see threads and shared L3 caches, and invtsc to trust the
//     TSC. QEMU emulates no instruction for either, and need not: both only describe the machine.
//     x-force-features keeps them on.
//   - arat says that timers continue in idle CPUs, which is true here.
//   - With x2apic a CPU reaches its APIC by registers of its own and not by memory. With a thread for
//     each CPU, QEMU 10.0.2 lost ends of interrupts that were written to
//     memory while another CPU mapped a device: the CPU then waited for ever, halted, with its
//     timer's interrupt in service (seen with "info lapic").
const amdModel = "qemu64,xlevel=0x8000001e,vendor=AuthenticAMD,family=23,model=1,stepping=2,model-id=QEMU virtual " +
	"AMD CPU,x-force-features=on,topoext=on,invtsc=on,svm=on,npt=on,+arat,+x2apic"

// intelModel is qemu64 as a processor of Intel's, whose threads Linux takes from leaf 0xb, and who
// shares an L3 from leaf 4. Its hosts have no KVM.
const intelModel = "qemu64,vendor=GenuineIntel,level=0xb,+arat,+x2apic"

// cpuModel is AMD's wherever the firmware can place the devices. Of an AMD CPU SeaBIOS 1.16
// believes that it has 40 address bits, and then, on a machine with memory above 4 GiB, leaves 512
// MiB of room at each port with a NIC. At a port of a switch, next to a GPU whose BAR has 32 bits,
// that is to lie below 4 GiB, where it is not: SeaBIOS halts with "PCI: out of 32bit address
// space".
func cpuModel(p *Profile) string {
	if len(p.Switches) > 0 && p.Memory() >= memoryBelow4G {
		return intelModel
	}
	return amdModel
}

// memoryBelow4G is how much memory q35 has all below 4 GiB; of more, a part lies above.
const memoryBelow4G = 0xb000_0000

// A machine is one QEMU as it is to be started: the profile, what it boots, and the files that it uses.
type machine struct {
	name    string // of the host, for process lists
	dir     string // of its sockets and logs
	profile *Profile
	qemu    vm.Emulator
	accel   string // "kvm" or "tcg"
	boot    Boot
	disk    string // overlay of the root disk
	tools   string // image of the second disk; "" for none
	ram     ram
	// adapters is the directory of the sockets of its ConnectX adapters, or "" for the empty ports of a template.
	adapters string
}

// socketSerial is that of the serial port ttyS0; the console is hvc0.
const socketSerial = "serial.sock"

// sockets are those of a host in its directory.
var sockets = vm.Sockets{vm.SocketQMP, vm.SocketAgent, socketSerial, vm.SocketConsole}

// vm returns the process of the machine.
func (m machine) vm() vm.Machine {
	return vm.Machine{Name: "host " + m.name, Binary: m.qemu.Path, Lead: m.qemu.Lead, Dir: m.dir, Sockets: sockets,
		Args: m.args()}
}

// vmWithAdapters is vm, with the ConnectX adapters of the profile, if it has some. Their server maps the machine's
// memory, so that it is no longer that of a template but a copy.
func (m machine) vmWithAdapters() (vm.Machine, error) {
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
	m.adapters, m.ram = m.dir, ram{open: true}
	v := m.vm()
	v.SharedMemory = files
	return v, nil
}

// ram is where the memory of the NUMA nodes lies: in anonymous memory, if nothing is set.
type ram struct {
	dir   string // of files ram0, ram1 ...
	share bool   // write to these files (a template being made), or copy on write
	open  bool   // in open files, which others map too
}

// file is the file of a NUMA node.
func (r ram) file(node int) string { return filepath.Join(r.dir, fmt.Sprintf("ram%d", node)) }

// A Boot is what a host starts from.
type Boot struct {
	Key    string // what it was made from: hosts with the same boot the same
	Kernel string // for QEMU's -kernel: a kernel, or GRUB wrapped as one
	Initrd string // "" for none
	Append string // "" for none
	Disk   string // qcow2 image below the host's overlay; "" for a host without a root disk
	// Environment of commands that Exec runs, as of a login of root.
	Environment []string
}

// args returns QEMU's arguments. Everything that the guest can see is a function of profile,
// accelerator and what boots alone: files and sockets are the host's own.
func (m machine) args() []string {
	p := m.profile
	mib := func(b int64) string { return strconv.FormatInt(b>>20, 10) + "M" }
	nodes, packages := len(p.NUMANodes), p.Packages
	coresPerDie := p.Cores() / nodes
	a := []string{
		"-name", "rackless-host-" + m.name,
		"-nodefaults", "-no-user-config", "-display", "none",
		// With the HPET, unlike nodes: against it a kernel that is emulated on a busy machine finds
		// its TSC good. Without it, it held the TSC against the ticks that it had missed, gave it
		// up for the slow ACPI timer, and one boot of 15 hung with timers that never came. The
		// IOMMU's interrupt remapping needs the I/O APIC in QEMU (kernel-irqchip=split).
		//
		// What the chipset has besides, nobody uses, and drivers would come for it: disks and a bus for sensors, a
		// keyboard and a mouse.
		"-machine", "q35,kernel-irqchip=split,vmport=off,sata=off,smbus=off,i8042=off",
		"-accel", m.accel, "-cpu", cpuModel(p),
		// A die of a package is a NUMA node: that gives each an L3 of its own.
		"-smp", fmt.Sprintf("%d,sockets=%d,dies=%d,cores=%d,threads=%d", p.CPUs(), packages, nodes/packages,
			coresPerDie, p.ThreadsPerCore),
		"-m", mib(int64(p.Memory())),
		// rackless inspect shows the first two as the machine's vendor and product, and tells
		// stand-ins for GPUs by the first.
		"-smbios", "type=1,manufacturer=" + topology.VendorEmulated + ",product=emulated " + p.Name,
	}
	// QEMU numbers CPUs by package, die, core and thread: those of a node follow one another.
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
		// What no real machine has goes to fixed places on the root bus of the chipset, so that
		// nothing moves when a profile changes. Each queue of a virtio device is a file descriptor
		// that QEMU's main loop polls, for each timer of each CPU: with 31 ports and 16 queues a
		// disk it was 138 of them, and the loop used up a core of the machine below.
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
		// Without a ROM, which the firmware would run for nobody to see.
		a = append(a, "-device", "VGA,bus=pcie.0,addr=0x5,romfile=")
	}
	return append(a, p.deviceArgs(m.adapters)...)
}

// deviceArgs returns the arguments for the profile's devices, in the order of their addresses. The
// firmware numbers buses depth first, and gives the root bus of a root complex (pxb-pcie) the
// number that it is told: a port there leads to the bus with the next number.
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
				if b.connectX() > 0 {
					late = comesLate
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

// comesLate is for ports that have an adapter in a clone, and none in its template: the power is on, and nothing tells
// the guest that there is a card now.
const comesLate = ",hotplug=off,power_controller_present=off"

// What the registers of devices take, in MiB.
const (
	adapterRoom = 32 // a function of a ConnectX
	gpuRoom     = 16 // a stand-in for a GPU
)

// connectX is how many functions of a ConnectX a device has.
func (d device) connectX() int {
	if d.nic == nil || d.nic.Model == "" {
		return 0
	}
	return d.nic.functions()
}

// reserve is what the root port needs so that clones find adapters late: room for their registers. Of those behind a
// switch, the guest forgets the switch before it is saved, and finds it again. It then places the GPUs there, whose
// registers have addresses of 32 bits, in the window without prefetching.
func (r root) reserve() string {
	if n := r.connectX(); n > 0 {
		return fmt.Sprintf("%s,pref64-reserve=%dM", comesLate, n*adapterRoom)
	}
	adapters, gpus := 0, 0
	for _, b := range r.behind {
		adapters += b.connectX()
		if b.gpu != nil {
			gpus++
		}
	}
	if adapters == 0 {
		return ""
	}
	// More than all take: the kernel rounds windows up, and the firmware does not know yet at multiples of what size
	// they have to begin.
	return fmt.Sprintf(",pref64-reserve=%dM,mem-reserve=%dM", (2*adapters+1)*adapterRoom, 2*(gpus+1)*gpuRoom)
}

// switchesWithConnectX are the upstream ports of switches that an adapter is behind.
func (p *Profile) switchesWithConnectX() (upstream []string) {
	for _, r := range p.roots() {
		if r.sw != nil && slices.ContainsFunc(r.behind, func(b device) bool { return b.connectX() > 0 }) {
			upstream = append(upstream, r.address.String())
		}
	}
	return upstream
}

// hubs numbers the wires: QEMU's software hub joins the ports on it.
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

// deviceList collects arguments.
type deviceList struct {
	args     []string
	hubs     map[string]int
	adapters string // directory of the sockets of ConnectX adapters
	chassis  int
	ends     int // of wires
}

func (d *deviceList) device(format string, args ...any) {
	d.args = append(d.args, "-device", fmt.Sprintf(format, args...))
}

// port adds a port with a slot of its own: two with the same chassis and slot are refused.
func (d *deviceList) port(format string, args ...any) {
	d.chassis++
	d.device(format+fmt.Sprintf(",chassis=%d", d.chassis), args...)
}

// card adds a GPU or a NIC on a bus.
func (d *deviceList) card(c device, bus string, conventional bool) {
	if c.nic != nil {
		d.nic(c.nic, bus, conventional)
		return
	}
	g := c.gpu
	d.device("secondary-vga,bus=%s,addr=0x%x.0,multifunction=%s", bus, g.Address.Device, vm.OnOff(g.Audio))
	if g.Audio {
		d.device("intel-hda,bus=%s,addr=0x%x.1", bus, g.Address.Device)
	}
}

// nic adds a card: an 82576 (igb) with virtual functions, an 82574 (e1000e) without, or on a
// conventional bus an 82540 (e1000), or a ConnectX in another process. None has a boot ROM: it
// would take the firmware seconds.
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
		// The kernel finds further functions of a device with ARI by the number of the next one
		// in its capability, which QEMU leaves 0 without this.
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

// portID is what QEMU calls a port, by its function.
func portID(n *NIC, port int) string {
	a := n.Address
	return fmt.Sprintf("nic%02x-%02x-%d", a.Bus, a.Device, port)
}

// mac is the address of a port: of QEMU's range, and the port's place in it. Hosts share no
// network, so that they may share addresses.
func mac(n *NIC, port int) string {
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", n.Address.Bus, n.Address.Device, port)
}

// unplugged returns the ports without a wire that QEMU emulates.
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
