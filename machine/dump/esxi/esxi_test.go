package esxi_test

import (
	"bytes"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vim25/xml"

	"github.com/rackless/rackless/machine/dump/esxi"
	"github.com/rackless/rackless/machine/topology"
)

func saved(t testing.TB, change func(*types.HostHardwareInfo, *types.HostConfigInfo)) []byte {
	t.Helper()
	hw := types.HostHardwareInfo{MemorySize: 8 << 30,
		CpuInfo: types.HostCpuInfo{NumCpuPackages: 1, NumCpuCores: 2, NumCpuThreads: 4, Hz: 3_000_000_000},
		CpuPkg:  []types.HostCpuPackage{{Hz: 3_000_000_000, Description: "Xeon", ThreadId: []int16{0, 1, 2, 3}}},
		NumaInfo: &types.HostNumaInfo{NumNodes: 1, NumaNode: []types.HostNumaNode{{CpuID: []int16{0, 1, 2, 3},
			MemorySize: 8 << 30, PciId: []string{"0000:3B:00.0"}}}},
		PciDevice: []types.HostPciDevice{{Id: "0000:3b:00.0", ClassId: 0x200, VendorId: 0x15b3, DeviceId: 0x1017},
			{Id: "0000:06:00.0", ClassId: 0x302, VendorId: 0x10de, DeviceId: 0x20b5}}}
	config := types.HostConfigInfo{
		PciPassthruInfo: []types.BaseHostPciPassthruInfo{&types.HostSriovInfo{
			HostPciPassthruInfo: types.HostPciPassthruInfo{Id: "0000:3b:00.0", PassthruCapable: true},
			SriovCapable:        true, NumVirtualFunction: 2, MaxVirtualFunctionSupported: 8}},
		Network: &types.HostNetworkInfo{
			Pnic: []types.PhysicalNic{{Key: "nic0", Device: "vmnic0", Pci: "0000:3b:00.0", Driver: "nmlx5_core"}},
			Vnic: []types.HostVirtualNic{{Device: "vmk0", Spec: types.HostVirtualNicSpec{
				DistributedVirtualPort: &types.DistributedVirtualSwitchPortConnection{SwitchUuid: "50 01"}}}},
			ProxySwitch: []types.HostProxySwitch{{DvsUuid: "50 01", Pnic: []string{"nic0"}}}}}
	change(&hw, &config)
	vms := types.ArrayOfManagedObjectReference{}
	for _, id := range []string{"vm-1", "vm-2", "vm-3", "vm-4"} {
		vms.ManagedObjectReference = append(vms.ManagedObjectReference,
			types.ManagedObjectReference{Type: "VirtualMachine", Value: id})
	}
	return object(t, "HostSystem", map[string]any{"hardware": hw, "config": config, "name": "esxi01", "vm": vms})
}

func object(t testing.TB, kind string, properties map[string]any) []byte {
	t.Helper()
	o := types.ObjectContent{Obj: types.ManagedObjectReference{Type: kind, Value: "x"}}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		o.PropSet = append(o.PropSet, types.DynamicProperty{Name: name, Val: properties[name]})
	}
	var b bytes.Buffer
	if err := xml.NewEncoder(&b).Encode(o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func machine(t testing.TB, template bool) []byte {
	t.Helper()
	c := types.VirtualMachineConfigInfo{Template: template, InstanceUuid: "50-01",
		CpuAffinity: &types.VirtualMachineAffinityInfo{AffinitySet: []int32{2, 3, -1, 1 << 30}},
		ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: esxi.NodeAffinity, Value: "0"}}}
	c.Hardware.NumCPU, c.Hardware.MemoryMB = 2, 1024
	c.Hardware.Device = []types.BaseVirtualDevice{
		&types.VirtualSriovEthernetCard{SriovBacking: &types.VirtualSriovEthernetCardSriovBackingInfo{
			PhysicalFunctionBacking: &types.VirtualPCIPassthroughDeviceBackingInfo{Id: "0000:3b:00.0"}}},
		&types.VirtualPCIPassthrough{VirtualDevice: types.VirtualDevice{
			Backing: &types.VirtualPCIPassthroughDeviceBackingInfo{Id: "0000:06:00.0"}}}}
	return object(t, "VirtualMachine", map[string]any{"name": "web", "config": c,
		"runtime": types.VirtualMachineRuntimeInfo{PowerState: types.VirtualMachinePowerStatePoweredOn}})
}

func TestTenants(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{"vm-1": machine(t, false), "vm-2": machine(t, true), "vm-3": []byte("<ObjectContent")}
	h, err := esxi.Saved(saved(t, unchanged), "host.xml", func(_, id string) ([]byte, error) {
		if files[id] == nil {
			return nil, fs.ErrNotExist
		}
		return files[id], nil
	})
	if err != nil {
		t.Fatal(err)
	}
	zero, cpus := topology.CPUs(0), topology.CPUs(2, 3)
	want := []topology.Tenant{{Name: "web", UUID: "50-01", State: "running", VCPUs: 2,
		MemoryBytes: new(uint64(1 << 30)), Floating: &cpus, MemoryNodes: &zero, MemoryMode: "strict",
		Devices: []topology.TenantDevice{{PCI: h.PCI[1].Address, Virtual: true}, {PCI: h.PCI[0].Address}}}}
	if diff := cmp.Diff(want, h.Tenants); diff != "" {
		t.Errorf("tenants (-want +got):\n%s", diff)
	}
	if len(h.Unread) != 2 || h.Unread[0].Path != "virtual machine vm-3" ||
		h.Unread[1].Why != "1 of 4 are not among the files beside that of the host" {
		t.Errorf("unread: %+v", h.Unread)
	}
}

func FuzzTenants(f *testing.F) {
	host, text := saved(f, unchanged), machine(f, false)
	f.Add(0, []byte{}, 0)
	f.Add(400, []byte(`xsi:type="VirtualMachineConfigInfo"`), 100)
	f.Add(100, []byte(`<val type="VirtualSriovEthernetCard"></val>`), 0)
	f.Fuzz(func(t *testing.T, at int, insert []byte, cut int) {
		h, err := esxi.Saved(host, "host.xml", func(_, _ string) ([]byte, error) {
			return edit(text, at, insert, cut), nil
		})
		if err != nil || h == nil {
			t.Fatal("a virtual machine makes its host unreadable:", err)
		}
	})
}

// edit inserts a small text, because a fuzz input as large as the text would be minimised for minutes.
func edit(text []byte, at int, insert []byte, cut int) []byte {
	edited := bytes.Clone(text[:len(text)-min(max(cut, 0), len(text))])
	at = min(max(at, 0), len(edited))
	return append(append(bytes.Clone(edited[:at]), insert...), edited[at:]...)
}

func unchanged(*types.HostHardwareInfo, *types.HostConfigInfo) {}

func TestParse(t *testing.T) {
	t.Parallel()
	text := saved(t, unchanged)
	if !esxi.Sniff(text) {
		t.Fatalf("a saved host is not recognised:\n%.300s", text)
	}
	h, err := esxi.Parse(text, "host.xml")
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Cores) != 2 || h.Cores[1].CPUs.String() != "2-3" || len(h.Inferred) != 1 {
		t.Errorf("cores: got %+v, inferred %q", h.Cores, h.Inferred)
	}
	nic := h.NICs[0]
	if nic.NUMANode == nil || *nic.NUMANode != 0 || nic.SRIOV == nil || *nic.SRIOV.Total != 8 ||
		*nic.SRIOV.Enabled != 2 {
		t.Errorf("NIC: got %+v", nic)
	}
	if len(h.GPUs) != 1 || h.GPUs[0].ID() != "0000:06:00.0" {
		t.Errorf("GPUs: got %+v", h.GPUs)
	}
	if len(h.Routes) != 1 || !cmp.Equal(h.Routes[0].PCI, []string{"0000:3b:00.0"}) {
		t.Errorf("routes: got %+v", h.Routes)
	}
}

func TestDumpsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text []byte
		want string
	}{
		"empty":   {nil, "not as govc object.save writes it"},
		"cut off": {saved(t, unchanged)[:900], "unexpected EOF"},
		"nested": {[]byte("<ObjectContent>" + strings.Repeat("<a>", 100)),
			"nested more than 64 deep"},
		"large": {bytes.Repeat([]byte(" "), 16<<20+1), "larger than 16 MiB"},
		"disconnected": {[]byte(`<ObjectContent><obj type="HostSystem">h</obj></ObjectContent>`),
			"host is disconnected"},
		"a CPU twice": {saved(t, func(hw *types.HostHardwareInfo, _ *types.HostConfigInfo) {
			hw.CpuPkg = append(hw.CpuPkg, hw.CpuPkg[0])
		}), "socket 0 has CPUs 0-3"},
		"a CPU below 0": {saved(t, func(hw *types.HostHardwareInfo, _ *types.HostConfigInfo) {
			hw.NumaInfo.NumaNode[0].CpuID[0] = -1
		}), "NUMA node 0 has CPU -1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := esxi.Parse(test.text, "host.xml"); err == nil || !strings.Contains(err.Error(), test.want) ||
				!strings.HasPrefix(err.Error(), "host.xml: ") {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestOddDevicesAreLeftOut(t *testing.T) {
	t.Parallel()
	h, err := esxi.Parse(saved(t, func(hw *types.HostHardwareInfo, _ *types.HostConfigInfo) {
		hw.PciDevice = append(hw.PciDevice, hw.PciDevice[0], types.HostPciDevice{Id: "3b:00"})
	}), "host.xml")
	if err != nil || len(h.PCI) != 2 || len(h.Unread) != 1 {
		t.Errorf("got %v, %d devices, unread %v", err, len(h.PCI), h.Unread)
	}
}

func FuzzParse(f *testing.F) {
	text := saved(f, unchanged)
	for _, cut := range []int{len(text), 900, 300} {
		f.Add(0, []byte{}, len(text)-cut)
	}
	f.Add(400, []byte(`xsi:type="HostConfigInfo"`), 0)
	f.Add(100, []byte(`<val type="ArrayOfInt"><int>1</int></val>`), 0)
	f.Fuzz(func(t *testing.T, at int, insert []byte, cut int) {
		h, err := esxi.Parse(edit(text, at, insert, cut), "host.xml")
		if err == nil && h == nil {
			t.Fatal("neither a host nor an error")
		}
	})
}
