// Package vspheretest runs vCenter's simulator, made strict: it refuses calls that a vCenter refuses, and adds features
// that the simulator lacks. A vCenter's refusals are only known from its documentation.
package vspheretest

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vim25/xml"
)

// Names in the inventory.
const (
	Host      = "DC0_C0_H0"         // of the paper on RoCE SR-IOV: two sockets, ConnectX-4 Lx, ConnectX-5
	Other     = "DC0_C0_H1"         // another host like it
	Template  = "DC0_C0_RP0_VM0"    // off
	Running   = "DC0_C0_RP0_VM1"    // on
	PortGroup = "DC0_DVPG0"         // on the switch DVS0
	PF        = "0000:3b:00.0"      // ConnectX-5, without virtual functions
	GPU       = "0000:d8:00.0"      // an A100
	Module    = "nmlx5_core"        // the only module with options
	SystemID  = "5e1c55c0-host-c0h" // passthrough's name of the host
)

// VFs is the number of virtual functions of each port of the ConnectX-5.
const VFs = 16

// A Server simulates vCenter.
type Server struct {
	Model *simulator.Model
	URL   *url.URL // with user and password
	// HTTP's handler may be wrapped before the first call.
	HTTP *http.Server
	// NeedsRestart is for drivers that make virtual functions only at the host's start.
	NeedsRestart bool

	login string // empty, not the user's own
}

// T is a test or a benchmark.
type T interface {
	Helper()
	Fatal(args ...any)
	TempDir() string
	Cleanup(func())
	Context() context.Context
}

// New starts a vCenter with realistic hosts, until the test ends.
func New(t T) *Server {
	t.Helper()
	log.SetOutput(io.Discard) // the simulator logs every refusal
	m := simulator.VPX()
	if err := m.Create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Remove)
	s := &Server{Model: m, login: filepath.Join(t.TempDir(), "login")}
	if err := os.WriteFile(s.login, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.equip()
	m.Map().Handler = s.judge
	m.Service.TLS = new(tls.Config)
	server := m.Service.NewServer()
	t.Cleanup(server.Close)
	s.HTTP, s.URL = server.Config, server.URL
	s.HTTP.ErrorLog = log.New(io.Discard, "", 0)
	return s
}

// Client is another than rackless.
func (s *Server) Client(t T) *vim25.Client {
	t.Helper()
	c, err := govmomi.NewClient(t.Context(), s.URL, true)
	if err != nil {
		t.Fatal(err)
	}
	return c.Client
}

// Env reaches the server.
func (s *Server) Env(name string) string {
	password, _ := s.URL.User.Password()
	return map[string]string{"GOVC_URL": "https://" + s.URL.Host + s.URL.Path, "GOVC_INSECURE": "1",
		"GOVC_USERNAME": s.URL.User.Username(), "GOVC_PASSWORD": password, "RACKLESS_VSPHERE": s.login}[name]
}

func (s *Server) equip() {
	r := s.Model.Map()
	for _, e := range r.All("HostSystem") {
		h := e.(*simulator.HostSystem)
		if h.Parent.Type != "ClusterComputeResource" {
			continue
		}
		hw := *h.Hardware
		hw.SystemInfo.Vendor, hw.SystemInfo.Model = "Dell Inc.", "PowerEdge R740 vSAN Ready Node"
		hw.CpuInfo = types.HostCpuInfo{NumCpuPackages: 2, NumCpuCores: 48, NumCpuThreads: 96, Hz: 2_992_968_000}
		hw.MemorySize = 384 << 30
		hw.NumaInfo = &types.HostNumaInfo{Type: "NUMA", NumNodes: 2}
		hw.CpuPkg = nil
		for node := range 2 {
			var cpus []int16
			for c := range 48 {
				cpus = append(cpus, int16(48*node+c))
			}
			hw.CpuPkg = append(hw.CpuPkg, types.HostCpuPackage{Index: int16(node), Vendor: "intel", Hz: hw.CpuInfo.Hz,
				Description: "Intel(R) Xeon(R) Gold 6248R CPU @ 3.00GHz", ThreadId: cpus})
			hw.NumaInfo.NumaNode = append(hw.NumaInfo.NumaNode, types.HostNumaNode{TypeId: byte(node), CpuID: cpus,
				MemorySize: 192 << 30, MemoryRangeBegin: int64(node) * 192 << 30, MemoryRangeLength: 192 << 30})
		}
		network := *h.Config.Network
		network.Pnic = nil
		hw.PciDevice = slices.Clone(hw.PciDevice[:1])
		config := *h.Config
		for i, card := range []struct {
			pci, name    string
			device, node int
		}{{"0000:1a:00.0", "MT27710 Family [ConnectX-4 Lx]", 0x1015, 0}, {PF, "MT27800 Family [ConnectX-5]", 0x1017, 0},
			{"0000:3b:00.1", "MT27800 Family [ConnectX-5]", 0x1017, 0},
			{"0000:af:00.0", "MT27800 Family [ConnectX-5]", 0x1017, 1}} {
			hw.PciDevice = append(hw.PciDevice, types.HostPciDevice{Id: card.pci, ClassId: 0x0200, VendorId: 0x15b3,
				DeviceId: int16(card.device), SubVendorId: 0x15b3, VendorName: "Mellanox Technologies",
				DeviceName: card.name})
			node := &hw.NumaInfo.NumaNode[card.node]
			node.PciId = append(node.PciId, card.pci)
			nic := types.PhysicalNic{Key: fmt.Sprintf("key-vim.host.PhysicalNic-vmnic%d", i), Driver: "nmlx5_core",
				Device: fmt.Sprintf("vmnic%d", i), Pci: card.pci, Mac: fmt.Sprintf("0C:42:A1:00:00:%02X", i),
				LinkSpeed: &types.PhysicalNicLinkInfo{SpeedMb: 100_000, Duplex: true}}
			info := types.HostPciPassthruInfo{Id: card.pci, DependentDevice: card.pci, PassthruCapable: true}
			if i == 0 {
				nic.LinkSpeed.SpeedMb = 25_000
				config.PciPassthruInfo = append(config.PciPassthruInfo, &info)
			} else {
				config.PciPassthruInfo = append(config.PciPassthruInfo, &types.HostSriovInfo{HostPciPassthruInfo: info,
					SriovCapable: true, MaxVirtualFunctionSupported: VFs})
			}
			network.Pnic = append(network.Pnic, nic)
		}
		hw.PciDevice = append(hw.PciDevice, types.HostPciDevice{Id: GPU, ClassId: 0x0302, VendorId: 0x10de,
			DeviceId: 0x20b5, VendorName: "NVIDIA Corporation", DeviceName: "GA100 [A100 PCIe 80GB]"})
		hw.NumaInfo.NumaNode[1].PciId = append(hw.NumaInfo.NumaNode[1].PciId, GPU)
		config.PciPassthruInfo = append(config.PciPassthruInfo, &types.HostPciPassthruInfo{Id: GPU,
			DependentDevice: GPU, PassthruCapable: true})
		config.Network = &network
		network.Vswitch, network.Portgroup = slices.Clone(network.Vswitch), slices.Clone(network.Portgroup)
		r.Get(*h.ConfigManager.NetworkSystem).(*simulator.HostNetworkSystem).NetworkInfo = &network
		h.Hardware, h.Config = &hw, &config
		s.targets(h)
		// The simulator shares one object among all hosts.
		for _, ref := range []**types.ManagedObjectReference{&h.ConfigManager.PciPassthruSystem,
			&h.ConfigManager.PowerSystem, &h.ConfigManager.KernelModuleSystem} {
			*ref = &types.ManagedObjectReference{Type: (*ref).Type, Value: (*ref).Value + "-" + h.Self.Value}
		}
		r.Put(&HostPciPassthruSystem{mo.HostPciPassthruSystem{
			ExtensibleManagedObject: mo.ExtensibleManagedObject{Self: *h.ConfigManager.PciPassthruSystem}}, h, s})
		r.Put(&HostPowerSystem{mo.HostPowerSystem{Self: *h.ConfigManager.PowerSystem,
			Capability: types.PowerSystemCapability{AvailablePolicy: policies}, Info: types.PowerSystemInfo{
				CurrentPolicy: policies[1]}}})
		r.Put(&HostKernelModuleSystem{mo.HostKernelModuleSystem{
			Self: *h.ConfigManager.KernelModuleSystem}, map[string]string{Module: ""}})
	}
	for _, e := range r.All("VirtualMachine") {
		vm := e.(*simulator.VirtualMachine)
		vm.Config.ExtraConfig = nil
		if vm.Name == Template || vm.Name == Running {
			s.place(vm)
		}
		if vm.Name == Template {
			vm.Config.Firmware = string(types.GuestOsDescriptorFirmwareTypeEfi)
			s.Power(vm.Name, types.VirtualMachinePowerStatePoweredOff)
		}
	}
	for _, e := range r.All("DistributedVirtualSwitch") {
		dvs := e.(*simulator.DistributedVirtualSwitch)
		if config, ok := dvs.Config.(*types.VMwareDVSConfigInfo); ok {
			config.MaxMtu = 1500
		}
		for _, ref := range dvs.Portgroup {
			g := r.Get(ref).(*simulator.DistributedVirtualPortgroup)
			if strings.HasPrefix(g.Name, dvs.Name+"-DVUplinks") {
				g.Config.Uplink = new(true)
			}
		}
	}
}

// place moves a machine to Host, because the simulator chooses a host at random.
func (s *Server) place(vm *simulator.VirtualMachine) {
	for _, e := range s.Model.Map().All("HostSystem") {
		h := e.(*simulator.HostSystem)
		h.Vm = slices.DeleteFunc(h.Vm, func(ref types.ManagedObjectReference) bool { return ref == vm.Self })
		if h.Name == Host {
			h.Vm = append(h.Vm, vm.Self)
			vm.Runtime.Host, vm.Summary.Runtime.Host = &h.Self, &h.Self
		}
	}
}

func (s *Server) targets(h *simulator.HostSystem) {
	target := &types.ConfigTarget{}
	for _, d := range h.Hardware.PciDevice {
		target.PciPassthrough = append(target.PciPassthrough, &types.VirtualMachinePciPassthroughInfo{PciDevice: d,
			SystemId: SystemID})
	}
	cluster := s.Model.Map().Get(*h.Parent).(*simulator.ClusterComputeResource)
	browser := s.Model.Map().Get(*cluster.EnvironmentBrowser).(*simulator.EnvironmentBrowser)
	browser.QueryConfigTargetResponse.Returnval = target
}

// Save writes the host with its virtual machines, networks and switches like govc object.save: all properties,
// indented. It returns the host's file.
func (s *Server) Save(t T, dir string) (file string) {
	t.Helper()
	collector := property.DefaultCollector(s.Client(t))
	save := func(ref types.ManagedObjectReference) string {
		var content []types.ObjectContent
		if err := collector.RetrieveOne(t.Context(), ref, nil, &content); err != nil {
			t.Fatal(err)
		}
		text, err := xml.MarshalIndent(content[0], "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, fmt.Sprintf("0021-%s-%s.xml", ref.Type, ref.Value))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, e := range s.Model.Map().All("DistributedVirtualSwitch") {
		save(e.Reference())
	}
	for _, e := range s.Model.Map().All("HostSystem") {
		if h := e.(*simulator.HostSystem); h.Name == Host {
			file = save(h.Self)
			for _, ref := range append(slices.Clone(h.Vm), h.Network...) {
				save(ref)
			}
		}
	}
	return file
}

var policies = []types.HostPowerPolicy{{Key: 1, Name: "PowerPolicy.static.name", ShortName: "static"},
	{Key: 2, Name: "PowerPolicy.dynamic.name", ShortName: "dynamic"},
	{Key: 3, Name: "PowerPolicy.low.name", ShortName: "low"}}

// VM returns a machine, or nil.
func (s *Server) VM(name string) *simulator.VirtualMachine {
	for _, e := range s.Model.Map().All("VirtualMachine") {
		if vm := e.(*simulator.VirtualMachine); vm.Name == name {
			return vm
		}
	}
	return nil
}

// Power sets a machine's power state.
func (s *Server) Power(name string, state types.VirtualMachinePowerState) {
	vm := s.VM(name)
	vm.Runtime.PowerState, vm.Summary.Runtime.PowerState = state, state
}
