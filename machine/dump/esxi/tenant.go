package esxi

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/machine/topology"
)

// Off is libvirt's state for a machine that does not run. Other vSphere states are also mapped to libvirt's.
const Off = "shut off"

// NodeAffinity is the parameter with a machine's NUMA nodes.
const NodeAffinity = "numa.nodeAffinity"

var states = map[types.VirtualMachinePowerState]string{types.VirtualMachinePowerStatePoweredOn: "running",
	types.VirtualMachinePowerStatePoweredOff: Off, types.VirtualMachinePowerStateSuspended: "paused"}

// Tenant reads a virtual machine; only the name and state if its configuration cannot be read. ok is false for a
// template, which never runs.
func Tenant(vm *mo.VirtualMachine) (t topology.Tenant, ok bool) {
	t = topology.Tenant{Name: vm.Name, State: states[vm.Runtime.PowerState]}
	c := vm.Config
	switch {
	case c == nil:
		return t, true
	case c.Template:
		return t, false
	}
	t.UUID, t.VCPUs = c.InstanceUuid, int(c.Hardware.NumCPU)
	t.MemoryBytes = new(uint64(max(c.Hardware.MemoryMB, 0)) << 20)
	if set := Affinity(c); !set.IsEmpty() {
		t.Floating = &set // each virtual CPU may run on any of these
	}
	if set, err := topology.ParseCPUSet(Parameter(c, NodeAffinity)); err == nil && !set.IsEmpty() {
		t.MemoryNodes, t.MemoryMode = &set, "strict"
	}
	for _, d := range c.Hardware.Device {
		if id, virtual := functionOf(d); id != "" {
			if a, err := topology.ParsePCIAddr(id); err == nil {
				t.Devices = append(t.Devices, topology.TenantDevice{PCI: a, Virtual: virtual})
			}
		}
	}
	return t, true
}

// Affinity returns the CPUs that a virtual machine is bound to, or none.
func Affinity(c *types.VirtualMachineConfigInfo) (set topology.CPUSet) {
	if c.CpuAffinity == nil {
		return set
	}
	for _, cpu := range c.CpuAffinity.AffinitySet {
		if cpu >= 0 && cpu < topology.MaxCPUs {
			set = set.Union(topology.CPUs(int(cpu)))
		}
	}
	return set
}

// Parameter returns a parameter of a virtual machine, or "".
func Parameter(c *types.VirtualMachineConfigInfo, name string) string {
	for _, o := range c.ExtraConfig {
		if v := o.GetOptionValue(); v.Key == name {
			return fmt.Sprint(v.Value)
		}
	}
	return ""
}

// functionOf returns the PCI function that a device uses, or "" if ESXi has not assigned one. virtual means a virtual
// function of it.
func functionOf(d types.BaseVirtualDevice) (id string, virtual bool) {
	switch d := d.(type) {
	case *types.VirtualSriovEthernetCard:
		if d.SriovBacking != nil && d.SriovBacking.PhysicalFunctionBacking != nil {
			return d.SriovBacking.PhysicalFunctionBacking.Id, true
		}
	case *types.VirtualPCIPassthrough:
		switch b := d.Backing.(type) {
		case *types.VirtualPCIPassthroughDeviceBackingInfo:
			return b.Id, false
		case *types.VirtualPCIPassthroughDynamicBackingInfo:
			return b.AssignedId, false
		}
	}
	return "", false
}

func (r *reader) tenants(refs []types.ManagedObjectReference, object Object) {
	missing := 0
	for _, ref := range refs[:min(len(refs), maxTenants)] {
		text, err := object(ref.Type, ref.Value)
		if errors.Is(err, fs.ErrNotExist) {
			missing++
			continue
		}
		var o *types.ObjectContent
		if err == nil {
			o, err = decode(text)
		}
		if err != nil {
			r.note("virtual machine "+ref.Value, err.Error())
			continue
		}
		var vm mo.VirtualMachine
		for _, p := range o.PropSet {
			switch v := p.Val.(type) {
			case string:
				if p.Name == "name" {
					vm.Name = v
				}
			case types.VirtualMachineConfigInfo:
				vm.Config = &v
			case types.VirtualMachineRuntimeInfo:
				vm.Runtime = v
			}
		}
		if t, ok := Tenant(&vm); ok {
			r.h.Tenants = append(r.h.Tenants, t)
		}
	}
	if missing > 0 {
		r.note("virtual machines", fmt.Sprintf("%d of %d are not among the files beside that of the host", missing,
			len(refs)))
	}
}
