package vsphere

import (
	"context"
	"path"
	"slices"

	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/topology"
)

// VMName is the name of a node's virtual machine, as that of its domain under libvirt.
func VMName(l *lab.Lab, node string) string { return l.Name + "." + node }

// Without returns a host as it is without the nodes of a lab in vSphere, which are no tenants beside themselves, and
// without their template while that is off: it is not going to be started.
func Without(l *lab.Lab, h *topology.Host) *topology.Host {
	if l.VSphere == nil {
		return h
	}
	other := *h
	other.Tenants = slices.DeleteFunc(slices.Clone(h.Tenants), func(t topology.Tenant) bool {
		return t.State == off && t.Name == path.Base(l.VSphere.Template) ||
			slices.ContainsFunc(l.Nodes, func(n lab.Node) bool { return t.Name == VMName(l, n.Name) })
	})
	return &other
}

// tenants returns the virtual machines of a host with what they hold. Templates never run, and are left out.
func (c *Conn) tenants(ctx context.Context, host types.ManagedObjectReference) ([]topology.Tenant, error) {
	v, err := view.NewManager(c.client.Client).CreateContainerView(ctx, host, []string{"VirtualMachine"}, true)
	if err != nil {
		return nil, err
	}
	defer v.Destroy(context.WithoutCancel(ctx)) // it ends with the session, too
	var vms []mo.VirtualMachine
	err = v.Retrieve(ctx, []string{"VirtualMachine"}, []string{"name", "config", "runtime.powerState"}, &vms)
	if err != nil {
		return nil, err
	}
	var all []topology.Tenant
	for i := range vms {
		if vm := &vms[i]; vm.Config == nil || !vm.Config.Template {
			all = append(all, tenant(vm))
		}
	}
	return all, nil
}

// off is libvirt's word for a virtual machine that does not run, as states are for those of vSphere.
const off = "shut off"

var states = map[types.VirtualMachinePowerState]string{types.VirtualMachinePowerStatePoweredOn: "running",
	types.VirtualMachinePowerStatePoweredOff: off, types.VirtualMachinePowerStateSuspended: "paused"}

// tenant reads a virtual machine. Of one whose configuration cannot be read only the name is known.
func tenant(vm *mo.VirtualMachine) topology.Tenant {
	t := topology.Tenant{Name: vm.Name, State: states[vm.Runtime.PowerState]}
	c := vm.Config
	if c == nil {
		return t
	}
	t.UUID, t.VCPUs = c.InstanceUuid, int(c.Hardware.NumCPU)
	t.MemoryBytes = new(uint64(max(c.Hardware.MemoryMB, 0)) << 20)
	if set := affinity(c); !set.IsEmpty() {
		t.Floating = &set // each virtual CPU may run on any of them
	}
	if set, err := topology.ParseCPUSet(parameter(nodeAffinity).get(c)); err == nil && !set.IsEmpty() {
		t.MemoryNodes, t.MemoryMode = &set, "strict"
	}
	for _, d := range c.Hardware.Device {
		if id, virtual := functionOf(d); id != "" {
			if a, err := topology.ParsePCIAddr(id); err == nil {
				t.Devices = append(t.Devices, topology.TenantDevice{PCI: a, Virtual: virtual})
			}
		}
	}
	return t
}

// functionOf returns the function that a device of a virtual machine is, or the one that it is a virtual function of.
// What ESXi has yet to choose is nobody's.
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
