package vspheretest

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// judge refuses what a vCenter refuses and its simulator does not.
func (s *Server) judge(ctx *simulator.Context, m *simulator.Method) (mo.Reference, types.BaseMethodFault) {
	switch req := m.Body.(type) {
	case *types.ReconfigVM_Task:
		if vm, ok := ctx.Map.Get(req.This).(*simulator.VirtualMachine); ok {
			if s.Meddle != nil {
				s.Meddle(vm)
			}
			if vm.Name != Running { // it is a clone, and the simulator's forget how they boot
				vm.Config.Firmware = s.VM(Template).Config.Firmware
			}
			return nil, s.judgeSpec(vm, &req.Spec)
		}
	case *types.Destroy_Task:
		vm, ok := ctx.Map.Get(req.This).(*simulator.VirtualMachine)
		if ok && vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
			return nil, &types.InvalidPowerState{ExistingState: vm.Runtime.PowerState,
				RequestedState: types.VirtualMachinePowerStatePoweredOff}
		}
	case *types.ReconfigureDvs_Task:
		if dvs, ok := ctx.Map.Get(req.This).(*simulator.DistributedVirtualSwitch); ok {
			return nil, judgeSwitch(dvs, req.Spec)
		}
	case *types.PowerOnVM_Task:
		if vm, ok := ctx.Map.Get(req.This).(*simulator.VirtualMachine); ok {
			return nil, s.judgePower(vm)
		}
	}
	return nil, nil
}

// judgeSpec refuses a change of a virtual machine.
func (s *Server) judgeSpec(vm *simulator.VirtualMachine, spec *types.VirtualMachineConfigSpec) types.BaseMethodFault {
	on := vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn
	switch {
	case spec.ChangeVersion != "" && spec.ChangeVersion != vm.Config.ChangeVersion:
		return new(types.ConcurrentAccess)
	case on && (spec.CpuAffinity != nil || spec.NumCPUs != 0 || spec.NumCoresPerSocket != nil ||
		len(spec.DeviceChange) > 0):
		return &types.InvalidPowerState{ExistingState: vm.Runtime.PowerState,
			RequestedState: types.VirtualMachinePowerStatePoweredOff}
	}
	for _, c := range spec.DeviceChange {
		d := c.GetVirtualDeviceConfigSpec()
		if d.Operation == types.VirtualDeviceConfigSpecOperationAdd && !s.possible(d.Device) {
			return &types.InvalidDeviceBacking{InvalidDeviceSpec: types.InvalidDeviceSpec{
				InvalidVmConfig: types.InvalidVmConfig{Property: "deviceChange.device.backing"}}}
		}
	}
	return nil
}

// possible reports whether the host has what a device of a virtual machine is to be.
func (s *Server) possible(d types.BaseVirtualDevice) bool {
	switch d := d.(type) {
	case *types.VirtualSriovEthernetCard:
		return s.pf(d.SriovBacking.PhysicalFunctionBacking.Id) != nil
	case *types.VirtualVmxnet3Vrdma:
		_, distributed := d.Backing.(*types.VirtualEthernetCardDistributedVirtualPortBackingInfo)
		return distributed && (d.DeviceProtocol == "rocev1" || d.DeviceProtocol == "rocev2")
	case *types.VirtualPCIPassthrough:
		switch b := d.Backing.(type) {
		case *types.VirtualPCIPassthroughDeviceBackingInfo:
			return b.SystemId == SystemID && s.function(b.Id) != nil
		case *types.VirtualPCIPassthroughDynamicBackingInfo:
			return len(b.AllowedDevice) > 0
		case *types.VirtualPCIPassthroughVmiopBackingInfo:
			return slices.Contains(s.host().Config.SharedPassthruGpuTypes, b.Vgpu)
		}
		return false
	}
	return true
}

// judgePower refuses to start a virtual machine whose devices or virtual functions are not free, or whose memory is not
// reserved. It chooses the devices that are ESXi's to choose.
func (s *Server) judgePower(vm *simulator.VirtualMachine) types.BaseMethodFault {
	vfs, taken := map[string]int32{}, map[string]bool{}
	for _, e := range s.Model.Map().All("VirtualMachine") {
		other := e.(*simulator.VirtualMachine)
		if other.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn {
			continue
		}
		for _, d := range other.Config.Hardware.Device {
			switch d := d.(type) {
			case *types.VirtualSriovEthernetCard:
				vfs[d.SriovBacking.PhysicalFunctionBacking.Id]++
			case *types.VirtualPCIPassthrough:
				taken[assigned(d)] = true
			}
		}
	}
	for _, d := range vm.Config.Hardware.Device {
		switch d := d.(type) {
		case *types.VirtualSriovEthernetCard:
			id := d.SriovBacking.PhysicalFunctionBacking.Id
			if vfs[id]++; vfs[id] > s.pf(id).NumVirtualFunction {
				return &types.InsufficientHostCapacityFault{}
			}
		case *types.VirtualPCIPassthrough:
			if !s.assign(d, taken) {
				return &types.InsufficientHostCapacityFault{}
			}
		case *types.VirtualVmxnet3Vrdma:
		default:
			continue
		}
		if vm.Config.MemoryReservationLockedToMax == nil || !*vm.Config.MemoryReservationLockedToMax {
			return &types.InvalidVmConfig{Property: "memoryReservationLockedToMax"}
		}
	}
	if s.Guest != nil {
		if vm.Guest == nil {
			vm.Guest = new(types.GuestInfo)
		}
		vm.Guest.GuestOperationsReady = new(true)
	}
	return nil
}

// assigned is the function that a device is; "" where it is none.
func assigned(d *types.VirtualPCIPassthrough) string {
	switch b := d.Backing.(type) {
	case *types.VirtualPCIPassthroughDeviceBackingInfo:
		return b.Id
	case *types.VirtualPCIPassthroughDynamicBackingInfo:
		return b.AssignedId
	}
	return ""
}

// assign gives a function to a device, if one that it may be is active and not taken.
func (s *Server) assign(d *types.VirtualPCIPassthrough, taken map[string]bool) bool {
	free := func(id string) bool {
		info := s.function(id)
		if info == nil || !info.PassthruActive || taken[id] {
			return false
		}
		taken[id] = true
		return true
	}
	switch b := d.Backing.(type) {
	case *types.VirtualPCIPassthroughDeviceBackingInfo:
		return free(b.Id)
	case *types.VirtualPCIPassthroughDynamicBackingInfo:
		for _, p := range s.host().Hardware.PciDevice {
			for _, a := range b.AllowedDevice {
				if uint16(p.VendorId) == uint16(a.VendorId) && uint16(p.DeviceId) == uint16(a.DeviceId) && free(p.Id) {
					b.AssignedId = p.Id
					return true
				}
			}
		}
		return false
	}
	return true // shares a GPU
}

// host returns the host that is worth planning for.
func (s *Server) host() *simulator.HostSystem {
	for _, e := range s.Model.Map().All("HostSystem") {
		if h := e.(*simulator.HostSystem); h.Name == Host {
			return h
		}
	}
	panic("no host " + Host)
}

// function returns what the host says about passing a function through, or nil.
func (s *Server) function(id string) *types.HostPciPassthruInfo {
	for _, p := range s.host().Config.PciPassthruInfo {
		if info := p.GetHostPciPassthruInfo(); info.Id == id {
			return info
		}
	}
	return nil
}

// pf returns what the host says about a physical function, or nil.
func (s *Server) pf(id string) *types.HostSriovInfo {
	for _, p := range s.host().Config.PciPassthruInfo {
		if info, ok := p.(*types.HostSriovInfo); ok && info.Id == id {
			return info
		}
	}
	return nil
}

// judgeSwitch refuses a wrong version or MTU, and sets the MTU: the simulator accepts one, and forgets it.
func judgeSwitch(s *simulator.DistributedVirtualSwitch, change types.BaseDVSConfigSpec) types.BaseMethodFault {
	spec, ok := change.(*types.VMwareDVSConfigSpec)
	config, isVMware := s.Config.(*types.VMwareDVSConfigInfo)
	switch {
	case !ok || !isVMware || spec.MaxMtu < 1280 || spec.MaxMtu > 9000:
		return &types.InvalidArgument{InvalidProperty: "spec"}
	case spec.ConfigVersion != config.ConfigVersion:
		return new(types.ConcurrentAccess)
	}
	config.MaxMtu = spec.MaxMtu
	return nil
}
