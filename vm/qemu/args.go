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

// agentPort is the name by which qemu-ga finds its virtio-serial port.
const agentPort = "org.qemu.guest_agent.0"

// setupPort is where rackless-node waits in the built-in image, see guest.Setup.
const setupPort = "org.rackless.setup"

// maxNICMTU is what every NIC offers the guest (virtio's host_mtu). It is part of the machine and
// so the same in a template and all of its clones; the lab's own MTU is set in the guest, at most
// this.
const maxNICMTU = 9216

// socketSetup is where the setup port is connected to.
const socketSetup = "setup.sock"

// SSHPorts is how many connections a full node can have at once from this machine.
const SSHPorts = 4

// SSHSocket is the socket of the i-th port of a full node on which sshd can be started, by the name that [SSHPort]
// returns.
func SSHSocket(i int) string { return fmt.Sprintf("ssh%d.sock", i) }

// SSHPort is the name by which the guest finds the port.
func SSHPort(i int) string { return fmt.Sprintf("org.rackless.ssh.%d", i) }

// SSHPortState is the file in which the guest's kernel says what it knows of the port: the agent's and the one of the
// setup come before.
func SSHPortState(i int) string { return fmt.Sprintf("/sys/kernel/debug/virtio-ports/vport0p%d", i+3) }

// sockets are those of a node in its directory.
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

// full reports whether the node is a full one, which has a disk.
func (s Spec) full() bool { return s.Image != nil && s.Image.IsFull() }

// A machine is what differs between the ways to start one QEMU.
type machine struct {
	spec  Spec
	arch  string       // as Go names it; empty means amd64
	accel string       // "kvm" or "tcg"
	image *image.Image // booted; nil for a clone
	ram   string       // memory file, or "" for anonymous memory
	disk  string       // of a full node
	share bool         // write to the memory file (a template being made), or copy on write (a clone)
	// blocks are the memory of a node with adapters, in place of ram
	blocks []block
	// the guest's kernel is told not to doubt its TSC; whoever sets it sees that the clock is right,
	// see vm.AwaitClock
	trustTSC bool
	moreArgs string // for the guest's kernel
}

// hardware is how QEMU makes machines of an architecture.
type hardware struct {
	machine string
	cpu     string // where it is emulated
	more    []string
	memory  int64 // address where it begins
}

func (m machine) hardware() hardware { return hardwareOf[cmp.Or(m.arch, "amd64")] }

var hardwareOf = map[string]hardware{
	// Without the HPET, whose timer QEMU keeps running at 250 Hz after the guest has left it: half of what an idle
	// node costs. qemu64 has no vector extensions to speak of: user space then takes simple code paths, which are the
	// cheap ones to translate.
	"amd64": {"q35,hpet=off,vmport=off", "qemu64", []string{"-device", "vmgenid,guid=auto"}, 0},
	"arm64": {"virt,gic-version=max,highmem-ecam=off", "max,pauth-impdef=on", nil, 1 << 30},
}

// args returns QEMU's arguments. Everything that the guest can see is a function of image,
// accelerator, memory, CPU count and number of NICs alone: that is what makes one template serve
// all nodes of a shape. Host-side things (sockets, MACs) may differ.
func (m machine) args() []string {
	s := m.spec
	sockets := s.sockets()
	a := []string{
		"-name", "rackless-" + s.Lab + "-" + s.Name,
		"-nodefaults", "-no-user-config",
	}
	if !s.full() { // which has its identity on its disk when it has started again
		a = append(a, "-no-reboot")
	}
	a = append(a, "-display", "none", "-m", strconv.FormatInt(s.Memory>>20, 10)+"M", "-smp", strconv.Itoa(s.CPUs))
	h := m.hardware()
	mach := h.machine
	if m.ram != "" {
		a = append(a, "-object", vm.MemoryFile("ram", s.Memory, m.ram, m.share))
		mach += ",memory-backend=ram"
	}
	for i, b := range m.blocks {
		a = append(a, b.args(i, s.CPUs)...)
	}
	a = append(a, "-machine", mach)
	if m.accel == "kvm" {
		a = append(a, "-accel", "kvm", "-cpu", "host")
	} else {
		cpu := h.cpu
		// Programs of a distribution are built for more than qemu64: GROMACS wants SSE4.1, wheels of PyPI want AVX.
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
	for i, n := range s.NICs {
		if s.Adapters {
			a = append(a, adapterArgs(i, n)...)
			continue
		}
		if n.Socket != "" {
			a = append(a, "-netdev",
				fmt.Sprintf("stream,id=n%d,server=off,addr.type=unix,addr.path=%s,reconnect-ms=1000", i,
					vm.Escape(n.Socket)))
		} else {
			a = append(a, "-netdev", fmt.Sprintf("hubport,id=n%d,hubid=%d", i, i)) // a template's: plugged into nothing
		}
		a = append(a, "-device", fmt.Sprintf("virtio-net-pci,netdev=n%d,mac=%s,host_mtu=%d,romfile=", i, n.MAC,
			maxNICMTU))
	}
	if m.disk != "" {
		// What a node wrote need not outlive the machine that it runs on.
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
	return a
}

// A Spec is one node as it is to be.
type Spec struct {
	Lab  string // the lab's name, for process lists
	Name string // unique in the lab
	// a directory of the node's own, for sockets and logs; short, since a socket's path has at most
	// 107 bytes
	Dir    string
	CPUs   int   // virtual CPUs
	Memory int64 // bytes
	NICs   []NIC
	Image  *image.Image // of a full node; nil stands for that of the driver
	// Home is shared by all nodes as their /home, unless it is empty.
	Home Home
	// Adapters says that the NICs are ConnectX adapters, which need a QEMU with vfio-user.
	Adapters bool

	// Attached, if not nil, is called when the node's sockets can be connected to and before its CPUs run.
	Attached func(ctx context.Context) error
	// Restore is called in a clone with adapters before its CPUs run: their server takes their states from the files
	// AdapterState of the template's directory.
	Restore func(ctx context.Context, template string) error
}

// A Home is a directory of this machine that a guest can mount, and nothing outside of it.
type Home struct {
	Dir string
	// Security is QEMU's security_model: what the guest's users, modes and special files are on this machine, where all
	// files belong to the user that runs QEMU.
	Security string
}

// A NIC is one network device of a node.
type NIC struct {
	MAC    string
	Socket string // the unix stream socket of the switch port that it is plugged into
	// Adapter is the socket of the server that emulates the NIC as a ConnectX; "" for a virtio NIC.
	Adapter string
	Model   string // of the adapter
}

// A Node is one node as it was started.
type Node struct {
	Name        string
	Process     vm.Process
	Accelerator string // "kvm" or "tcg"
	Cloned      bool   // resumed from a template, not booted
	ColdReason  string // why not
	Started     time.Time
	Agent       string // unix socket of the guest agent
	Console     string // unix socket of the serial console
	Log         string // file with what the console printed

	// Setup is the connection to the guest's setup port, for whoever started the node to use once
	// and close; see guest.NewSetup.
	Setup net.Conn
}
