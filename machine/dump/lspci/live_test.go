package lspci_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/dump/lspci"
)

// TestLiveListAgreesWithSysfs compares this machine's lspci output with sysfs.
func TestLiveListAgreesWithSysfs(t *testing.T) {
	t.Parallel()
	const sysfs = "/sys/bus/pci/devices"
	entries, err := os.ReadDir(sysfs)
	if err != nil || len(entries) == 0 {
		t.Skip("no PCI functions on this machine")
	}
	tool, err := exec.LookPath("lspci")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("no lspci on this machine: install pciutils to run this test")
	}
	for _, flags := range []string{"-vvnn", "-nn", "-vmmkn", "-Dvnn"} {
		out, err := exec.Command(tool, flags).Output()
		if err != nil {
			t.Fatalf("lspci %s: %v", flags, err)
		}
		h, err := lspci.Parse(out, "lspci "+flags)
		if err != nil {
			t.Errorf("lspci %s: %v", flags, err)
			continue
		}
		if len(h.PCI) != len(entries) {
			t.Errorf("lspci %s: %d functions; the kernel has %d", flags, len(h.PCI), len(entries))
		}
		for i := range h.PCI {
			d := &h.PCI[i]
			file := func(name string) string {
				b, err := os.ReadFile(filepath.Join(sysfs, d.Address.String(), name))
				if err != nil {
					return "?"
				}
				return strings.TrimSpace(string(b))
			}
			for _, id := range []struct{ name, got string }{
				{"vendor", orUnknown(d.Vendor)}, {"device", orUnknown(d.Device)},
				{"subsystem_vendor", orUnknown(d.SubsystemVendor)}, {"subsystem_device", orUnknown(d.SubsystemDevice)},
				{"revision", orUnknown(d.Revision)}, {"numa_node", orUnknown(d.NUMANode)},
			} {
				if want := file(id.name); id.got != "?" && id.got != want {
					t.Errorf("lspci %s: %s %s is %s; the kernel says %s", flags, d.Address, id.name, id.got, want)
				}
			}
			// lspci reads the class from the device; the kernel may correct it.
			if class := file("class"); d.Class != nil && len(class) == 8 && d.Class.String()[:6] != class[:6] {
				t.Logf("lspci %s: %s class %s; the kernel says %s", flags, d.Address, d.Class, class)
			}
			driver, err := os.Readlink(filepath.Join(sysfs, d.Address.String(), "driver"))
			if d.DriverKnown && (err == nil) != (d.Driver != "") || d.Driver != "" &&
				d.Driver != filepath.Base(driver) {
				t.Errorf("lspci %s: %s driver %q; the kernel says %q", flags, d.Address, d.Driver,
					filepath.Base(driver))
			}
			if d.Parent == nil && !d.ParentUnknown {
				link, err := os.Readlink(filepath.Join(sysfs, d.Address.String()))
				if root := filepath.Base(filepath.Dir(link)); err == nil && root != d.Root {
					t.Errorf("lspci %s: %s on %s; the kernel says %s", flags, d.Address, d.Root, root)
				}
			}
		}
	}
}
