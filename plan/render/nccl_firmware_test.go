package render

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"

	"github.com/rackless/rackless/vm/qapi"
)

// From Debian's ovmf.
const (
	firmwareCode = "/usr/share/OVMF/OVMF_CODE_4M.fd"
	firmwareVars = "/usr/share/OVMF/OVMF_VARS_4M.fd"
)

type qemuDevice struct {
	Bus      int    `json:"bus"`
	Slot     int    `json:"slot"`
	Function int    `json:"function"`
	ID       string `json:"qdev_id"`
	Bridge   struct {
		Devices []qemuDevice `json:"devices"`
	} `json:"pci_bridge"`
}

// The addresses in the file for NCCL are only predictions of the firmware's numbering. UEFI numbers the buses of a
// domain with expanders and switches.
func TestTheFirmwareGivesTheAddressesOfTheNCCLFile(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("boots a firmware: not with -short")
	}
	qemu := need(t, "qemu-system-x86_64", "qemu-system-x86")
	if _, err := os.Stat(firmwareCode); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("%v: install Debian's ovmf", err)
	}
	in := switched(t)
	domains, err := Domains(in)
	if err != nil {
		t.Fatal(err)
	}
	vars := filepath.Join(t.TempDir(), "vars.fd")
	data, err := os.ReadFile(firmwareVars)
	if err == nil {
		err = os.WriteFile(vars, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-nodefaults", "-display", "none", "-machine", "q35", "-accel", "tcg", "-m", "512M",
		"-drive", "if=pflash,format=raw,readonly=on,file=" + firmwareCode,
		"-drive", "if=pflash,format=raw,file=" + vars}, busesOf(t, readDomain(t, domains[0].Data))...)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute) // the machine may be busy
	defer cancel()
	want := maps.Clone(switchedInGuest)
	var got map[string]string
	q := startQEMU(ctx, t, qemu, args)
	for {
		if got = devices(ctx, t, q); len(got) == len(want) {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the firmware has found %v, and no more", got)
		case <-time.After(200 * time.Millisecond):
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices of the host by their addresses in the guest (-the file for NCCL +the firmware):\n%s", diff)
	}
}

// busesOf replaces each passed-through device by an emulated one, whose ID and subsystem device are the host address.
func busesOf(t *testing.T, d *libvirtxml.Domain) []string {
	t.Helper()
	var args []string
	nodes := len(d.CPU.Numa.Cell)
	for i := range nodes {
		args = append(args, "-object", fmt.Sprintf("memory-backend-ram,id=m%d,size=%dM", i, 512/nodes),
			"-numa", fmt.Sprintf("node,nodeid=%d,memdev=m%d", i, i))
	}
	on := func(bus uint) string {
		if bus == 0 {
			return "pcie.0"
		}
		return fmt.Sprintf("pci.%d", bus)
	}
	device := func(a *libvirtxml.DomainAddressPCI, format string, more ...any) {
		text := fmt.Sprintf(format, more...) + fmt.Sprintf(",bus=%s,addr=%#x.%#x", on(*a.Bus), *a.Slot, *a.Function)
		if a.MultiFunction == "on" {
			text += ",multifunction=on"
		}
		args = append(args, "-device", text)
	}
	for _, c := range d.Devices.Controllers {
		if c.Type != "pci" || c.Model == "pcie-root" {
			continue
		}
		id, a := on(*c.Index), c.Address.PCI
		switch c.Model {
		case "pcie-root-port":
			device(a, "pcie-root-port,id=%s,chassis=%d,port=%d", id, *c.Index, *c.Index)
		case "pcie-expander-bus":
			device(a, "pxb-pcie,id=%s,bus_nr=%d,numa_node=%d", id, *c.PCI.Target.BusNr, *c.PCI.Target.NUMANode)
		case "pcie-switch-upstream-port":
			device(a, "x3130-upstream,id=%s", id)
		case "pcie-switch-downstream-port":
			device(a, "xio3130-downstream,id=%s,chassis=%d,port=%d", id, *c.Index, *c.Index)
		default:
			t.Fatalf("controller %s", c.Model)
		}
	}
	passed := func(host, guest *libvirtxml.DomainAddressPCI) {
		device(guest, "e1000e,romfile=,id=h%04x-%02x-%02x,subsys_ven=%s,subsys=%d", *host.Domain, *host.Bus, *host.Slot,
			StandInVendor, *host.Bus<<8|*host.Slot<<3)
	}
	for _, n := range d.Devices.Interfaces {
		if n.Source != nil && n.Source.Hostdev != nil {
			passed(n.Source.Hostdev.PCI.Address, n.Address.PCI)
		}
	}
	for _, h := range d.Devices.Hostdevs {
		passed(h.SubsysPCI.Source.Address, h.Address.PCI)
	}
	return args
}

func devices(ctx context.Context, t *testing.T, q *qapi.Conn) map[string]string {
	t.Helper()
	found := map[string]string{}
	var look func(devices []qemuDevice)
	look = func(devices []qemuDevice) {
		for _, d := range devices {
			if host, ok := strings.CutPrefix(d.ID, "h"); ok && d.Bus != 0 {
				found[fmt.Sprintf("0000:%02x:%02x.%x", d.Bus, d.Slot, d.Function)] =
					strings.ReplaceAll(host, "-", ":") + ".0"
			}
			look(d.Bridge.Devices)
		}
	}
	var buses []struct {
		Devices []qemuDevice `json:"devices"`
	}
	if err := q.Call(ctx, "query-pci", nil, &buses); err != nil {
		t.Fatal(err)
	}
	for _, b := range buses {
		look(b.Devices)
	}
	return found
}

func startQEMU(ctx context.Context, t *testing.T, binary string, args []string) *qapi.Conn {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "qmp")
	c := exec.CommandContext(ctx, binary, append(args, "-qmp", "unix:"+socket+",server=on,wait=off")...)
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	for {
		q, err := qapi.DialQMP(ctx, socket)
		if err == nil {
			t.Cleanup(func() { q.Close() })
			return q
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
