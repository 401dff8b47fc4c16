package vm

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/vm/qapi"
)

type fakeDevice struct {
	config [64]uint32
	table  map[uint64]uint32
	at     uint32
	log    []string // writes
}

const fakeTable = 0x120002000

func newFakeDevice() *fakeDevice {
	d := &fakeDevice{table: map[uint64]uint32{}}
	d.config[pciCapabilities/4] = 0x60
	d.config[0x60/4] = 0x9c10
	d.config[0x9c/4] = 2<<16 | 0x4000 | capMSIX // 3 vectors
	d.config[0xa0/4] = 0x2000
	for v := range uint64(3) {
		d.table[fakeTable+16*v+12] = 1
	}
	return d
}

func (d *fakeDevice) answer(line string) string {
	var at, value uint64
	word, rest, _ := strings.Cut(line, " ")
	fmt.Sscanf(rest, "%v %v", &at, &value)
	const mapped = armECAM | 5<<20 | 2<<15
	switch {
	case at&^0xff == mapped:
		port := strings.NewReplacer("readl", "inl", "writel", "outl").Replace(word)
		d.at = uint32(at - mapped)
		return d.answer(fmt.Sprintf("%s %#x %#x", port, pciData, value))
	case word == "outl" && at == pciAddress && value>>8 == 0x80<<16|5<<8|2<<3:
		d.at = uint32(value & 0xff)
	case word == "inl" && at == pciData:
		return fmt.Sprintf("OK %#x", d.config[d.at/4])
	case word == "outl" && at == pciData:
		d.log = append(d.log, fmt.Sprintf("%02x=%x", d.at, value))
		d.config[d.at/4] = uint32(value)
	case word == "readl":
		return fmt.Sprintf("OK %#016x", d.table[at])
	case word == "writel":
		d.log = append(d.log, fmt.Sprintf("%x=%x", at, value))
		d.table[at] = uint32(value)
	default:
		return "FAIL Unknown command"
	}
	return "OK"
}

func serveLines(t *testing.T, greeting string, answer func(string) string) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(nc, greeting)
			for in := bufio.NewScanner(nc); in.Scan(); {
				fmt.Fprintln(nc, answer(in.Text()))
			}
			nc.Close()
		}
	}()
	return path
}

func TestPCIDeviceIsWrittenAsItWasRead(t *testing.T) {
	for arch, ecam := range map[string]uint64{"x86_64": 0, "aarch64": armECAM} {
		t.Run(arch, func(t *testing.T) { testPCIDevice(t, arch, ecam) })
	}
}

func testPCIDevice(t *testing.T, arch string, ecam uint64) {
	const pci = `{"return": [{"bus": 0, "devices": [{"bus": 0, "slot": 1, "function": 0, "qdev_id": "rng"},
		{"bus": 0, "slot": 2, "function": 0, "qdev_id": "cx0", "pci_bridge": {"bus": {"number": 0}, "devices": [
		{"bus": 5, "slot": 2, "function": 0, "qdev_id": "nic0"}]}}]}]}`
	qmp := serveLines(t, `{"QMP": {}}`+"\n", func(line string) string {
		if strings.Contains(line, "query-pci") {
			return strings.ReplaceAll(pci, "\n", "")
		}
		return `{"return": {"arch": "` + arch + `"}}`
	})
	q, err := qapi.DialQMP(limited(t), qmp)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()

	old := newFakeDevice()
	old.config[pciCommand/4] = 0x00100406
	old.config[pciBAR0/4], old.config[pciBAR0/4+1] = 0x2000000c, 1
	old.config[0x9c/4] |= msixEnable
	old.config[0x68/4] = 0x2810 // PCI Express device control
	for i, w := range []uint32{0xfee00000, 0, 0x25, 0} {
		old.table[fakeTable+16+4*uint64(i)] = w
	}
	got, err := ReadPCIDevice(limited(t), q, serveLines(t, "", old.answer), "nic0")
	if err != nil {
		t.Fatal(err)
	}
	want := &PCIDevice{Bus: 5, Slot: 2, Config: old.config, ECAM: ecam,
		Vectors: [][4]uint32{{0, 0, 0, 1}, {0xfee00000, 0, 0x25, 0}, {0, 0, 0, 1}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}

	clone := newFakeDevice()
	if err := got.Write(limited(t), serveLines(t, "", clone.answer)); err != nil {
		t.Fatal(err)
	}
	old.config[pciCommand/4] &= 0xffff
	if diff := cmp.Diff(old.config, clone.config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(old.table, clone.table); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	const order = "10=2000000c 04=406 9c=c0024011 120002010=fee00000 12000201c=0 9c=80024011"
	var said []string
	for _, w := range clone.log {
		if slices.Contains(strings.Fields(order), w) {
			said = append(said, w)
		}
	}
	if strings.Join(said, " ") != order {
		t.Errorf("written in the order %v, want %s", said, order)
	}

	if _, err := ReadPCIDevice(limited(t), q, "/nowhere", "nic1"); err == nil ||
		err.Error() != "QEMU has no PCI device nic1" {
		t.Errorf("a device that is not there: %v", err)
	}
	wrong := serveLines(t, "", func(string) string { return "FAIL Unknown command" })
	if err := got.Write(limited(t), wrong); err == nil || !strings.Contains(err.Error(), "by qtest: it said") {
		t.Errorf("a QEMU that refuses: %v", err)
	}
	if _, err := ReadPCIDevice(limited(t), q, wrong, "nic0"); err == nil {
		t.Error("a QEMU that refuses to be read")
	}
}

func TestCapabilitiesThatLeadNowhere(t *testing.T) {
	for _, at := range []uint32{0x40, 0xfc} {
		var d PCIDevice
		d.Config[pciCapabilities/4] = at
		d.Config[0x40/4] = 0x40<<8 | capPM
		d.Config[0xfc/4] = capMSIX
		if got := d.capability(capMSIX); got != 0 {
			t.Errorf("list at %#x: MSI-X at %#x", at, got)
		}
	}
}
