package machinetest_test

import (
	"io/fs"
	"testing"

	"github.com/rackless/rackless/machine/inspect/tree"
	"github.com/rackless/rackless/machine/machinetest"
)

const example = "../../examples/hosts/epyc-7551p.ttar"

func TestAFactCanBeTakenAway(t *testing.T) {
	t.Parallel()
	m := machinetest.Load(example)
	m.Remove("sys/class/iommu")
	m.Remove("sys/bus/pci")
	if b, err := m.FS().ReadDir("sys/class/iommu"); err == nil {
		t.Errorf("sys/class/iommu still has %v", b)
	}
}

// The output must equal the kernel's files in the example.
func TestAFunctionIsWrittenAsTheExampleHasIt(t *testing.T) {
	t.Parallel()
	want := machinetest.Load(example)
	got := machinetest.New()
	got.AddFunction(machinetest.Function{Addr: "0000:00:01.2", Root: "pci0000:00", Class: "0x060400", ID: "1022:1453",
		Group: 2, Driver: "pcieport", Speed: "5.0 GT/s PCIe", Max: "8.0 GT/s PCIe", Width: 1, MaxW: 2,
		Port: "root port", Buses: [2]uint8{2, 2}})
	dir := got.AddFunction(machinetest.Function{Addr: "0000:02:00.0", Above: []string{"0000:00:01.2"},
		Root: "pci0000:00", Class: "0x020000", ID: "8086:1521", Group: 15, Driver: "igb", Speed: "5.0 GT/s PCIe",
		Max: "5.0 GT/s PCIe", Width: 1, MaxW: 1})
	got.AddPort(dir, machinetest.Port{Netdev: "eno1", MAC: "02:00:00:00:02:00", MTU: 1500, Mbps: 1000})
	have, machine := got.FS(), want.FS()
	if err := fs.WalkDir(have, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		read := have.ReadFile
		from := machine.ReadFile
		if d.Type() == fs.ModeSymlink {
			read, from = target(have), target(machine)
		}
		a, errA := read(name)
		b, errB := from(name)
		if string(a) != string(b) || errA != nil || errB != nil {
			t.Errorf("%s: got %q, %v; the example has %q, %v", name, a, errA, b, errB)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func target(m *tree.Mem) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		to, err := m.ReadLink(name)
		return []byte(to), err
	}
}
