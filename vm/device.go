package vm

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/rackless/rackless/vm/qapi"
)

// SocketTest is the socket of QEMU's qtest protocol, which accesses PCI devices as the guest does.
const SocketTest = "qtest.sock"

// TestArgs returns QEMU's arguments for the qtest protocol.
func TestArgs(s Sockets) []string {
	return []string{"-chardev", s.Chardev("qtest", SocketTest), "-qtest", "chardev:qtest", "-qtest-log", "none"}
}

// A PCIDevice is the guest's setup of a device that another process emulates. QEMU does not save it (vfio-user devices
// cannot migrate), so it must be written back to a clone.
type PCIDevice struct {
	Bus, Slot, Function uint32
	Config              [64]uint32 // configuration space
	Vectors             [][4]uint32
	// ECAM is the address of the memory-mapped configuration space, or 0 if it is reached by ports.
	ECAM uint64 `json:",omitempty"`
}

// armECAM is the ECAM address of machine virt with highmem-ecam=off (QEMU, hw/arm/virt.c, VIRT_PCIE_ECAM).
const armECAM = 0x3f000000

const (
	pciCommand      = 0x04
	pciBAR0         = 0x10
	pciCapabilities = 0x34
	capPM           = 0x01
	capExpress      = 0x10
	capMSIX         = 0x11
	msixEnable      = 1 << 31 // in the capability's first word
	msixMaskAll     = 1 << 30
)

// ReadPCIDevice reads a device of the stopped machine behind q. Its MSI-X table must be in BAR 0.
func ReadPCIDevice(ctx context.Context, q *qapi.Conn, socket, id string) (*PCIDevice, error) {
	var buses []struct {
		Devices []pciNode `json:"devices"`
	}
	if err := q.Call(ctx, "query-pci", nil, &buses); err != nil {
		return nil, err
	}
	var d *PCIDevice
	for _, b := range buses {
		d = cmp.Or(d, findPCI(b.Devices, id))
	}
	if d == nil {
		return nil, fmt.Errorf("QEMU has no PCI device %s", id)
	}
	var target struct {
		Arch string `json:"arch"`
	}
	if err := q.Call(ctx, "query-target", nil, &target); err != nil {
		return nil, err
	}
	if target.Arch == "aarch64" {
		d.ECAM = armECAM
	}
	t, err := dialQTest(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer t.close()
	for i := range d.Config {
		d.Config[i] = t.config(d, uint32(4*i))
	}
	if msix := d.capability(capMSIX); msix != 0 {
		n := d.Config[msix/4]>>16&0x7ff + 1
		for i := range n {
			var v [4]uint32
			for j := range v {
				v[j] = t.readl(d.table(msix) + uint64(16*i) + uint64(4*j))
			}
			d.Vectors = append(d.Vectors, v)
		}
	}
	return d, t.err
}

// Write restores the device of a stopped machine. The command register follows the BARs, which it enables.
func (d *PCIDevice) Write(ctx context.Context, socket string) error {
	t, err := dialQTest(ctx, socket)
	if err != nil {
		return err
	}
	defer t.close()
	for _, at := range d.settings() {
		t.setConfig(d, at, d.Config[at/4])
	}
	msix := d.capability(capMSIX)
	t.setConfig(d, pciCommand, d.Config[pciCommand/4]&0xffff) // ones in the status half would clear bits
	if msix != 0 && d.Config[msix/4]&msixEnable != 0 {
		t.setConfig(d, msix, d.Config[msix/4]|msixMaskAll)
		for i, v := range d.Vectors {
			const masked = 1
			if v[3]&masked != 0 { // as after reset
				continue
			}
			for j, w := range v {
				t.writel(d.table(msix)+uint64(16*i)+uint64(4*j), w)
			}
		}
		t.setConfig(d, msix, d.Config[msix/4])
	}
	return t.flush()
}

// settings returns the offsets of registers that a guest sets. Writes to other capabilities may have side effects.
func (d *PCIDevice) settings() []uint32 {
	all := []uint32{0x0c, pciBAR0, 0x14, 0x18, 0x1c, 0x20, 0x24, 0x30, 0x3c}
	for id, registers := range map[uint32][]uint32{capPM: {4}, capExpress: {8, 0x10, 0x28, 0x30}} {
		at := d.capability(id)
		for _, r := range registers {
			if at != 0 && at+r < uint32(4*len(d.Config)) {
				all = append(all, at+r)
			}
		}
	}
	return all
}

func (d *PCIDevice) capability(id uint32) uint32 {
	at := d.Config[pciCapabilities/4] & 0xfc
	for range len(d.Config) { // also ends a circular list
		if at == 0 || at > 0xf0 { // no register of a wanted capability fits
			return 0
		}
		if d.Config[at/4]&0xff == id {
			return at
		}
		at = d.Config[at/4] >> 8 & 0xfc
	}
	return 0
}

// table returns the address of the MSI-X table, in the 64-bit BAR 0.
func (d *PCIDevice) table(msix uint32) uint64 {
	bar := uint64(d.Config[pciBAR0/4]&^0xf) | uint64(d.Config[pciBAR0/4+1])<<32
	return bar + uint64(d.Config[msix/4+1]&^7)
}

type pciNode struct {
	Bus      uint32 `json:"bus"`
	Slot     uint32 `json:"slot"`
	Function uint32 `json:"function"`
	ID       string `json:"qdev_id"`
	Bridge   struct {
		Devices []pciNode `json:"devices"`
	} `json:"pci_bridge"`
}

func findPCI(nodes []pciNode, id string) *PCIDevice {
	for _, n := range nodes {
		if n.ID == id {
			return &PCIDevice{Bus: n.Bus, Slot: n.Slot, Function: n.Function}
		}
		if d := findPCI(n.Bridge.Devices, id); d != nil {
			return d
		}
	}
	return nil
}

// A qtest is a connection: one command per line, answered by OK and, for reads, a value. The first error is kept.
type qtest struct {
	nc    net.Conn
	r     *bufio.Reader
	out   []byte
	asked int // commands in out
	value uint64
	err   error
	stop  func() bool
}

func dialQTest(ctx context.Context, path string) (*qtest, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return &qtest{nc: nc, r: bufio.NewReader(nc), stop: context.AfterFunc(ctx, func() { nc.Close() })}, nil
}

func (t *qtest) close() {
	t.stop()
	t.nc.Close()
}

func (t *qtest) say(format string, args ...any) {
	t.out = fmt.Appendf(t.out, format+"\n", args...)
	t.asked++
}

func (t *qtest) flush() error {
	if _, err := t.nc.Write(t.out); err != nil {
		t.fail(err)
	}
	for ; t.asked > 0 && t.err == nil; t.asked-- {
		b, err := t.r.ReadSlice('\n')
		if err != nil {
			t.fail(err)
			break
		}
		line := string(b)
		word, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word != "OK" {
			t.fail(fmt.Errorf("it said %.80q", line))
		} else if value != "" {
			t.value, err = strconv.ParseUint(value, 0, 64)
			t.fail(err)
		}
	}
	t.out, t.asked = nil, 0
	return t.err
}

func (t *qtest) fail(err error) {
	if t.err == nil && err != nil {
		t.err = fmt.Errorf("access a device by qtest: %w", err)
	}
}

// Configuration space is accessed by an address and a data port, as on the first PCI machines, or in memory.
const (
	pciAddress = 0xcf8
	pciData    = 0xcfc
)

func (t *qtest) address(d *PCIDevice, at uint32) {
	t.say("outl %#x %#x", pciAddress, 1<<31|d.Bus<<16|d.Slot<<11|d.Function<<8|at)
}

func (d *PCIDevice) mapped(at uint32) uint64 {
	return d.ECAM + uint64(d.Bus<<20|d.Slot<<15|d.Function<<12|at)
}

func (t *qtest) config(d *PCIDevice, at uint32) uint32 {
	if d.ECAM != 0 {
		return t.readl(d.mapped(at))
	}
	t.address(d, at)
	t.say("inl %#x", pciData)
	_ = t.flush() // t keeps the error
	return uint32(t.value)
}

func (t *qtest) setConfig(d *PCIDevice, at, value uint32) {
	if d.ECAM != 0 {
		t.writel(d.mapped(at), value)
		return
	}
	t.address(d, at)
	t.say("outl %#x %#x", pciData, value)
}

func (t *qtest) readl(at uint64) uint32 {
	t.say("readl %#x", at)
	_ = t.flush()
	return uint32(t.value)
}

func (t *qtest) writel(at uint64, value uint32) { t.say("writel %#x %#x", at, value) }
