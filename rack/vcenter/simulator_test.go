package vcenter_test

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/vm/vspheretest"
)

func uplink(network *types.HostNetworkInfo, device string) string {
	i := slices.IndexFunc(network.Pnic, func(p types.PhysicalNic) bool { return p.Device == device })
	if i < 0 {
		return ""
	}
	key := network.Pnic[i].Key
	var taken []string
	for _, s := range network.Vswitch {
		taken = append(taken, s.Pnic...)
	}
	for _, s := range network.ProxySwitch {
		taken = append(taken, s.Pnic...)
	}
	if slices.Contains(taken, key) {
		return ""
	}
	return key
}

// A HostNetworkSystem makes standard switches with MTU and uplinks, which the simulator ignores, and refuses resources
// in use. The name is vSphere's.
type HostNetworkSystem struct {
	*simulator.HostNetworkSystem
	server *server
}

// AddVirtualSwitch makes a switch.
func (n *HostNetworkSystem) AddVirtualSwitch(req *types.AddVirtualSwitch) soap.HasFault {
	refuse := func(fault types.BaseMethodFault) soap.HasFault {
		return &methods.AddVirtualSwitchBody{Fault_: vspheretest.Refused(fault)}
	}
	if req.Spec == nil || req.Spec.Mtu < vspheretest.MinMTU || req.Spec.Mtu > vspheretest.MaxMTU ||
		req.Spec.NumPorts == 0 {
		return refuse(&types.InvalidArgument{InvalidProperty: "spec"})
	}
	made := types.HostVirtualSwitch{Name: req.VswitchName, Key: "key-vim.host.VirtualSwitch-" + req.VswitchName,
		Mtu: req.Spec.Mtu, Spec: *req.Spec}
	if bond, ok := req.Spec.Bridge.(*types.HostVirtualSwitchBondBridge); ok {
		for _, nic := range bond.NicDevice {
			key := uplink(n.NetworkInfo, nic)
			if key == "" {
				return refuse(&types.ResourceInUse{Type: "PhysicalNic", Name: nic})
			}
			made.Pnic = append(made.Pnic, key)
		}
	}
	res := n.HostNetworkSystem.AddVirtualSwitch(req)
	if res.Fault() == nil {
		n.NetworkInfo.Vswitch[len(n.NetworkInfo.Vswitch)-1] = made
	}
	return res
}

// RemovePortGroup refuses one in use.
func (n *HostNetworkSystem) RemovePortGroup(ctx *simulator.Context, req *types.RemovePortGroup) soap.HasFault {
	used := n.server.uses(func(b types.BaseVirtualDeviceBackingInfo) bool {
		card, ok := b.(*types.VirtualEthernetCardNetworkBackingInfo)
		return ok && card.DeviceName == req.PgName
	})
	if used {
		return &methods.RemovePortGroupBody{Fault_: vspheretest.Refused(&types.ResourceInUse{Name: req.PgName})}
	}
	return n.HostNetworkSystem.RemovePortGroup(ctx, req)
}

// RemoveVirtualSwitch refuses one with port groups.
func (n *HostNetworkSystem) RemoveVirtualSwitch(req *types.RemoveVirtualSwitch) soap.HasFault {
	for _, s := range n.NetworkInfo.Vswitch {
		if s.Name == req.VswitchName && len(s.Portgroup) > 0 {
			return &methods.RemoveVirtualSwitchBody{Fault_: vspheretest.Refused(&types.ResourceInUse{Name: s.Name})}
		}
	}
	return n.HostNetworkSystem.RemoveVirtualSwitch(req)
}

func (s *server) uses(is func(types.BaseVirtualDeviceBackingInfo) bool) bool {
	for _, e := range s.Model.Map().All("VirtualMachine") {
		for _, d := range e.(*simulator.VirtualMachine).Config.Hardware.Device {
			if is(d.GetVirtualDevice().Backing) {
				return true
			}
		}
	}
	return false
}

type folder struct{ *simulator.Folder }

// CreateDVSTask makes a switch.
func (f *folder) CreateDVSTask(ctx *simulator.Context, req *types.CreateDVS_Task) soap.HasFault {
	res := f.Folder.CreateDVSTask(ctx, req)
	t := ctx.Map.Get(res.(*methods.CreateDVS_TaskBody).Res.Returnval).(*simulator.Task)
	t.Wait()
	ref, ok := t.Info.Result.(types.ManagedObjectReference)
	if !ok {
		return res
	}
	dvs := ctx.Map.Get(ref).(*simulator.DistributedVirtualSwitch)
	// Another context waits for the port group that the simulator is making.
	ctx.Map.WithLock(new(simulator.Context), dvs, func() {
		config := dvs.Config.(*types.VMwareDVSConfigInfo)
		config.ConfigVersion = "1"
		for _, ref := range dvs.Portgroup {
			ctx.Map.Get(ref).(*simulator.DistributedVirtualPortgroup).Config.Uplink = new(true)
		}
	})
	return res
}

// judgeSwitch refuses a wrong version or MTU, and uplinks in use. The simulator accepts but ignores members.
func (s *server) judgeSwitch(ctx *simulator.Context, m *simulator.Method,
	dvs *simulator.DistributedVirtualSwitch) types.BaseMethodFault {
	config := dvs.Config.(*types.VMwareDVSConfigInfo)
	mtu := config.MaxMtu
	if _, fault := s.refuse(ctx, m); fault != nil {
		return fault
	}
	fault := s.members(ctx, dvs, config, m.Body.(*types.ReconfigureDvs_Task).Spec.(*types.VMwareDVSConfigSpec))
	if fault != nil {
		config.MaxMtu = mtu
	}
	return fault
}

func (s *server) members(ctx *simulator.Context, dvs *simulator.DistributedVirtualSwitch,
	config *types.VMwareDVSConfigInfo, spec *types.VMwareDVSConfigSpec) types.BaseMethodFault {
	for _, member := range spec.Host {
		h, ok := ctx.Map.Get(member.Host).(*simulator.HostSystem)
		if !ok {
			return &types.ManagedObjectNotFound{Obj: member.Host}
		}
		if member.Operation == string(types.ConfigSpecOperationRemove) {
			if fault := s.leave(ctx, dvs, config, h); fault != nil {
				return fault
			}
			continue
		}
		proxy := types.HostProxySwitch{DvsUuid: dvs.Uuid, DvsName: dvs.Name}
		for _, nic := range member.Backing.(*types.DistributedVirtualSwitchHostMemberPnicBacking).PnicSpec {
			key := uplink(h.Config.Network, nic.PnicDevice)
			if key == "" {
				return &types.ResourceInUse{Type: "PhysicalNic", Name: nic.PnicDevice}
			}
			proxy.Pnic = append(proxy.Pnic, key)
		}
		h.Config.Network.ProxySwitch = append(h.Config.Network.ProxySwitch, proxy)
		config.Host = append(config.Host, types.DistributedVirtualSwitchHostMember{
			Config: types.DistributedVirtualSwitchHostMemberConfigInfo{Host: &member.Host, Backing: member.Backing}})
	}
	return nil
}

// leave removes a host from an unused switch, and its port groups from the host, which the simulator does not do.
func (s *server) leave(ctx *simulator.Context, dvs *simulator.DistributedVirtualSwitch,
	config *types.VMwareDVSConfigInfo, h *simulator.HostSystem) types.BaseMethodFault {
	if s.onSwitch(dvs.Uuid, "") {
		return &types.ResourceInUse{Type: "DistributedVirtualSwitch", Name: dvs.Name}
	}
	config.Host = slices.DeleteFunc(config.Host, func(m types.DistributedVirtualSwitchHostMember) bool {
		return *m.Config.Host == h.Self
	})
	network := h.Config.Network
	network.ProxySwitch = slices.DeleteFunc(network.ProxySwitch, func(p types.HostProxySwitch) bool {
		return p.DvsUuid == dvs.Uuid
	})
	if len(network.ProxySwitch) == 0 {
		network.ProxySwitch = nil
	}
	for _, ref := range dvs.Portgroup {
		s.forget(ctx, ref)
	}
	return nil
}

func (s *server) onSwitch(uuid, portgroup string) bool {
	return s.uses(func(b types.BaseVirtualDeviceBackingInfo) bool {
		card, ok := b.(*types.VirtualEthernetCardDistributedVirtualPortBackingInfo)
		return ok && card.Port.SwitchUuid == uuid && (portgroup == "" || card.Port.PortgroupKey == portgroup)
	})
}

func (s *server) forget(ctx *simulator.Context, ref types.ManagedObjectReference) {
	for _, e := range ctx.Map.All("HostSystem") {
		h := e.(*simulator.HostSystem)
		h.Network = without(h.Network, ref)
	}
	for _, e := range ctx.Map.All("ClusterComputeResource") {
		c := e.(*simulator.ClusterComputeResource)
		c.Network = without(c.Network, ref)
	}
}

// without copies, because the simulator's objects share slices.
func without(all []types.ManagedObjectReference, ref types.ManagedObjectReference) []types.ManagedObjectReference {
	return slices.DeleteFunc(slices.Clone(all), func(r types.ManagedObjectReference) bool { return r == ref })
}

// judgeDestroy refuses objects in use, and removes a switch's uplink port group with it, which the simulator does not
// do.
func (s *server) judgeDestroy(ctx *simulator.Context, ref types.ManagedObjectReference) types.BaseMethodFault {
	switch o := ctx.Map.Get(ref).(type) {
	case *simulator.DistributedVirtualPortgroup:
		dvs := ctx.Map.Get(*o.Config.DistributedVirtualSwitch).(*simulator.DistributedVirtualSwitch)
		if s.onSwitch(dvs.Uuid, o.Key) {
			return &types.ResourceInUse{Type: ref.Type, Name: o.Name}
		}
		s.forget(ctx, ref)
	case *simulator.DistributedVirtualSwitch:
		if config := o.Config.(*types.VMwareDVSConfigInfo); len(config.Host) > 0 || len(o.Portgroup) > 1 {
			return &types.ResourceInUse{Type: ref.Type, Name: o.Name}
		}
		for _, group := range slices.Clone(o.Portgroup) {
			g := ctx.Map.Get(group).(*simulator.DistributedVirtualPortgroup)
			res := g.DestroyTask(ctx, &types.Destroy_Task{This: group})
			ctx.Map.Get(res.(*methods.Destroy_TaskBody).Res.Returnval).(*simulator.Task).Wait()
		}
	}
	return nil
}

// judgeMove refuses a running machine, or one with a device of its host. The simulator does not update the hosts.
func (s *server) judgeMove(ctx *simulator.Context, vm *simulator.VirtualMachine,
	to *types.ManagedObjectReference) types.BaseMethodFault {
	if vm.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOff {
		return vspheretest.WrongPower(vm, types.VirtualMachinePowerStatePoweredOff)
	}
	h, ok := ctx.Map.Get(*to).(*simulator.HostSystem)
	if !ok || ofHost(vm) {
		return &types.InvalidVmConfig{Property: "host"}
	}
	old := s.HostOf(vm)
	old.Vm, h.Vm = without(old.Vm, vm.Self), append(slices.Clone(h.Vm), vm.Self)
	return nil
}

func ofHost(vm *simulator.VirtualMachine) bool {
	return slices.ContainsFunc(vm.Config.Hardware.Device, func(d types.BaseVirtualDevice) bool {
		switch d.(type) {
		case *types.VirtualSriovEthernetCard, *types.VirtualPCIPassthrough:
			return true
		}
		return false
	})
}
