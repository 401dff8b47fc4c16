package qemu

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/image"
)

const agentPort = "org.qemu.guest_agent.0"

// setupPort is rackless-node's; see guest.Setup.
const setupPort = "org.rackless.setup"

// maxNICMTU is offered by every NIC (virtio's host_mtu), so that a template and its clones share it; the guest sets the
// lab's own MTU, up to this.
const maxNICMTU = 9216

const socketSetup = "setup.sock"

// SSHPorts limits concurrent connections to a full node.
const SSHPorts = 4

// SSHSocket names the host's socket of the i-th port for sshd; the guest knows it as [SSHPort].
func SSHSocket(i int) string { return fmt.Sprintf("ssh%d.sock", i) }

// SSHPort is the guest's name of the port.
func SSHPort(i int) string { return fmt.Sprintf("org.rackless.ssh.%d", i) }

// SSHPortState is the guest kernel's state of the port. The agent's and the setup port have lower numbers.
func SSHPortState(i int) string { return fmt.Sprintf("/sys/kernel/debug/virtio-ports/vport0p%d", i+3) }

func (s Spec) sockets() vm.Sockets {
	all := vm.Sockets{vm.SocketQMP, vm.SocketAgent, vm.SocketConsole, socketSetup}
	for i := range SSHPorts {
		if s.full() {
			all = append(all, SSHSocket(i))
		}
	}
	if s.Adapters {
		all = append(all, vm.SocketTest)
	}
	return all
}

func (s Spec) full() bool { return s.Image != nil && s.Image.IsFull() }

type machine struct {
	spec  Spec
	arch  string       // as in Go; "" means amd64
	accel string       // "kvm" or "tcg"
	image *image.Image // nil for a clone
	ram   string       // "" for anonymous memory
	disk  string       // of a full node
	share bool         // when making a template; otherwise copy on write
	// blocks, of a node with adapters, replace ram
	blocks []block
	// trustTSC makes the kernel not doubt its TSC. The caller must check the clock; see vm.AwaitClock.
	trustTSC bool
	moreArgs string // for the guest's kernel
}

type hardware struct {
	machine string
	cpu     string // for emulation
	more    []string
	memory  int64 // start address
}

func (m machine) hardware() hardware { return hardwareOf[cmp.Or(m.arch, "amd64")] }

var hardwareOf = map[string]hardware{
	// QEMU runs the HPET at 250 Hz even after the guest has stopped using it: half the cost of an idle node. qemu64 has
	// almost no vector extensions, so user space takes paths that are cheap to translate.
	"amd64": {"q35,hpet=off,vmport=off", "qemu64", []string{"-device", "vmgenid,guid=auto"}, 0},
	"arm64": {"virt,gic-version=max,highmem-ecam=off", "max,pauth-impdef=on", nil, 1 << 30},
}

// args returns QEMU's arguments. Everything visible to the guest depends only on the image, the accelerator, the
// memory, and the numbers of CPUs and NICs, so one template serves all nodes of a shape.
func (m machine) args() []string {
	s := m.spec
	sockets := s.sockets()
	a := []string{
		"-name", "rackless-" + s.Lab + "-" + s.Name,
		"-nodefaults", "-no-user-config",
	}
	if !s.full() { // its disk keeps a full node's identity
		a = append(a, "-no-reboot")
	}
	a = append(a, "-display", "none", "-m", strconv.FormatInt(s.Memory>>20, 10)+"M", "-smp", s.smp())
	h := m.hardware()
	mach := h.machine
	if m.ram != "" {
		a = append(a, "-object", vm.MemoryFile("ram", s.Memory, m.ram, m.share))
		mach += ",memory-backend=ram"
	}
	for i, b := range m.blocks {
		a = append(a, b.args(i, s.nodeCPUs(i))...)
	}
	if s.hasIOMMU() && m.accel == "kvm" {
		mach += ",kernel-irqchip=split" // an emulated IOMMU cannot remap interrupts of the kernel's own controller
	}
	a = append(a, "-machine", mach)
	if s.hasIOMMU() {
		a = append(a, iommuArgs...)
	}
	if m.accel == "kvm" {
		a = append(a, "-accel", "kvm", "-cpu", "host")
	} else {
		cpu := h.cpu
		// GROMACS needs SSE4.1, wheels of PyPI need AVX.
		if s.full() {
			cpu = "max"
		}
		a = append(a, "-accel", "tcg,thread=multi", "-cpu", cpu)
	}
	if m.image != nil && !m.image.BootsItself() {
		kernelArgs := m.image.KernelArgs() + m.moreArgs
		if m.trustTSC {
			kernelArgs += " tsc=reliable"
		}
		if s.Adapters {
			kernelArgs += image.ConnectXArg
			if s.NUMANodes == 0 {
				kernelArgs += image.HideNUMAArg
			}
		}
		if s.hasIOMMU() {
			kernelArgs += image.IOMMUArg
		}
		a = append(a, "-kernel", m.image.KernelPath(), "-initrd", m.image.InitramfsPath(), "-append", kernelArgs)
	}
	a = append(a, "-chardev", sockets.Chardev("qmp", vm.SocketQMP), "-mon", "chardev=qmp,mode=control", "-chardev",
		sockets.Chardev("con", vm.SocketConsole)+",logfile="+vm.Escape(filepath.Join(s.Dir, vm.FileConsole))+
			",logappend=on", "-serial", "chardev:con", "-device", "virtio-serial-pci,id=vser", "-chardev",
		sockets.Chardev("ga", vm.SocketAgent), "-device", "virtserialport,bus=vser.0,chardev=ga,name="+agentPort,
		"-chardev", sockets.Chardev("setup", socketSetup), "-device", "virtserialport,bus=vser.0,chardev=setup,name="+
			setupPort, "-device", "virtio-rng-pci")
	a = append(a, h.more...)
	for i := range SSHPorts {
		if s.full() {
			id := fmt.Sprintf("ssh%d", i)
			a = append(a, "-chardev", sockets.Chardev(id, SSHSocket(i)), "-device",
				"virtserialport,bus=vser.0,chardev="+id+",name="+SSHPort(i))
		}
	}
	if s.Adapters {
		a = append(a, vm.TestArgs(sockets)...)
	}
	if s.Adapters && s.NUMANodes == 0 {
		a = append(a, pciArgs(s)...)
	}
	for i, n := range s.NICs {
		if s.Adapters {
			break
		}
		if n.Socket != "" {
			a = append(a, "-netdev",
				fmt.Sprintf("stream,id=n%d,server=off,addr.type=unix,addr.path=%s,reconnect-ms=1000", i,
					vm.Escape(n.Socket)))
		} else {
			a = append(a, "-netdev", fmt.Sprintf("hubport,id=n%d,hubid=%d", i, i)) // not plugged in
		}
		a = append(a, "-device", fmt.Sprintf("virtio-net-pci,netdev=n%d,mac=%s,host_mtu=%d,romfile=", i, n.MAC,
			maxNICMTU))
	}
	if m.disk != "" {
		// Writes need not survive a crash of the machine.
		a = append(a, "-blockdev", "driver=qcow2,node-name=root,file.driver=file,file.filename="+vm.Escape(m.disk)+
			",discard=unmap,file.discard=unmap,cache.no-flush=on", "-device", "virtio-blk-pci,drive=root")
	}
	if s.Home.Dir != "" {
		a = append(a, "-fsdev", "local,id=home,multidevs=remap,security_model="+s.Home.Security+",path="+
			vm.Escape(s.Home.Dir), "-device", "virtio-9p-pci,fsdev=home,mount_tag=home")
	}
	if m.image != nil && m.image.SeedPath() != "" {
		a = append(a, "-blockdev", "driver=raw,node-name=seed,read-only=on,file.driver=file,file.filename="+
			vm.Escape(m.image.SeedPath()), "-device", "virtio-blk-pci,drive=seed")
	}
	if s.Adapters && s.NUMANodes > 0 {
		// Last: QEMU puts devices without a bus behind a new host bridge, which then refuses them.
		a = append(a, pciArgs(s)...)
	}
	return a
}

// smp avoids Linux' warning about a package whose CPUs are in several NUMA nodes.
func (s Spec) smp() string {
	cpus := strconv.Itoa(s.CPUs)
	switch {
	case s.NUMANodes < 2:
		return cpus
	case s.CPUs%s.NUMANodes == 0:
		return fmt.Sprintf("%s,sockets=%d", cpus, s.NUMANodes)
	}
	return cpus + ",sockets=" + cpus
}

// A Spec is the wanted state of a node.
type Spec struct {
	Lab  string // for process lists
	Name string // unique in the lab
	// for sockets and logs; socket paths have at most 107 bytes
	Dir    string
	CPUs   int   // virtual CPUs
	Memory int64 // bytes
	NICs   []NIC
	Image  *image.Image // nil means the driver's
	// Home is /home of all nodes, unless empty.
	Home Home
	// Adapters makes the NICs ConnectX adapters. QEMU needs vfio-user.
	Adapters bool
	GPUs     []GPU // needs Adapters
	// NUMANodes are seen by the guest of a node with adapters. With 0, clones share more memory with their template.
	NUMANodes int

	// Attached, if set, is called when the sockets accept connections, before the CPUs run.
	Attached func(ctx context.Context) error
	// Restore is called in a clone with adapters before its CPUs run. It loads AdapterState files of the template's
	// directory into the server.
	Restore func(ctx context.Context, template string) error
}

// A Home can be mounted by guests, without access outside it.
type Home struct {
	Dir string
	// Security is QEMU's security_model: it maps users, modes and special files of the guest to files that belong to
	// the user of QEMU.
	Security string
}

// A NIC is a network device of a node.
type NIC struct {
	MAC    string
	Socket string // of its switch port
	// Adapter is the socket of the server that emulates the NIC; "" for virtio.
	Adapter string
	Model   string // of the adapter
	NUMA    int    // if the node has any
}

// A Node runs.
type Node struct {
	Name        string
	Process     vm.Process
	Accelerator string // "kvm" or "tcg"
	Cloned      bool   // instead of booted
	ColdReason  string // why not cloned
	Started     time.Time
	Agent       string // unix socket
	Console     string // unix socket, serial
	Log         string // file with the console's output

	// Setup is used once and closed by the caller; see guest.NewSetup.
	Setup net.Conn
}
