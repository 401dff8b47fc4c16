package vspheretest

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

func (s *Server) judge(ctx *simulator.Context, m *simulator.Method) (mo.Reference, types.BaseMethodFault) {
	object := ctx.Map.Get(m.This)
	if req, ok := m.Body.(*types.ReconfigureDvs_Task); ok {
		if dvs, ok := object.(*simulator.DistributedVirtualSwitch); ok {
			return nil, judgeSwitch(dvs, req.Spec)
		}
	}
	vm, ok := object.(*simulator.VirtualMachine)
	if !ok {
		return nil, nil
	}
	switch req := m.Body.(type) {
	case *types.Destroy_Task:
		if vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
			return nil, WrongPower(vm, types.VirtualMachinePowerStatePoweredOff)
		}
	case *types.ReconfigVM_Task:
		if vm.Name != Running { // the simulator's clones lose the firmware setting
			vm.Config.Firmware = s.VM(Template).Config.Firmware
		}
		return nil, s.judgeSpec(vm, &req.Spec)
	case *types.PowerOnVM_Task:
		return nil, s.judgePower(vm)
	}
	return nil, nil
}

// MinMTU and MaxMTU are the limits of switches, in bytes.
const MinMTU, MaxMTU = 1280, 9000

// judgeSwitch refuses a wrong version or MTU, which it sets, because the simulator forgets it.
func judgeSwitch(dvs *simulator.DistributedVirtualSwitch, change types.BaseDVSConfigSpec) types.BaseMethodFault {
	spec, ok := change.(*types.VMwareDVSConfigSpec)
	config, isVMware := dvs.Config.(*types.VMwareDVSConfigInfo)
	switch {
	case !ok || !isVMware || spec.MaxMtu < MinMTU || spec.MaxMtu > MaxMTU:
		return &types.InvalidArgument{InvalidProperty: "spec"}
	case spec.ConfigVersion != config.ConfigVersion:
		return new(types.ConcurrentAccess)
	}
	config.MaxMtu = spec.MaxMtu
	return nil
}

// WrongPower is the fault if a call needs another power state.
func WrongPower(vm *simulator.VirtualMachine, need types.VirtualMachinePowerState) types.BaseMethodFault {
	return &types.InvalidPowerState{ExistingState: vm.Runtime.PowerState, RequestedState: need}
}

func (s *Server) judgeSpec(vm *simulator.VirtualMachine, spec *types.VirtualMachineConfigSpec) types.BaseMethodFault {
	on := vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn
	switch {
	case spec.ChangeVersion != "" && spec.ChangeVersion != vm.Config.ChangeVersion:
		return new(types.ConcurrentAccess)
	case on && (spec.CpuAffinity != nil || spec.NumCPUs != 0 || spec.NumCoresPerSocket != nil ||
		len(spec.DeviceChange) > 0):
		return WrongPower(vm, types.VirtualMachinePowerStatePoweredOff)
	}
	for _, c := range spec.DeviceChange {
		d := c.GetVirtualDeviceConfigSpec()
		if d.Operation == types.VirtualDeviceConfigSpecOperationAdd && !s.possible(vm, d.Device) {
			return &types.InvalidDeviceBacking{InvalidDeviceSpec: types.InvalidDeviceSpec{
				InvalidVmConfig: types.InvalidVmConfig{Property: "deviceChange.device.backing"}}}
		}
	}
	return nil
}

func (s *Server) possible(vm *simulator.VirtualMachine, d types.BaseVirtualDevice) bool {
	h := s.HostOf(vm)
	switch d := d.(type) {
	case *types.VirtualSriovEthernetCard:
		return pf(h, d.SriovBacking.PhysicalFunctionBacking.Id) != nil
	case *types.VirtualPCIPassthrough:
		switch b := d.Backing.(type) {
		case *types.VirtualPCIPassthroughDeviceBackingInfo:
			return b.SystemId == SystemID && function(h, b.Id) != nil
		case *types.VirtualPCIPassthroughDynamicBackingInfo:
			return len(b.AllowedDevice) > 0
		}
		return false
	}
	return true
}

// judgePower refuses to start if devices or virtual functions are taken, or required reservations are missing. It
// chooses devices as ESXi does.
func (s *Server) judgePower(vm *simulator.VirtualMachine) types.BaseMethodFault {
	h, vfs, taken := s.HostOf(vm), map[string]int32{}, map[string]bool{}
	for _, e := range s.Model.Map().All("VirtualMachine") {
		other := e.(*simulator.VirtualMachine)
		if other.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn ||
			*other.Runtime.Host != *vm.Runtime.Host {
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
			if vfs[id]++; vfs[id] > pf(h, id).NumVirtualFunction {
				return &types.InsufficientHostCapacityFault{}
			}
		case *types.VirtualPCIPassthrough:
			if !assign(h, d, taken) {
				return &types.InsufficientHostCapacityFault{}
			}
		default:
			continue
		}
		if vm.Config.MemoryReservationLockedToMax == nil || !*vm.Config.MemoryReservationLockedToMax {
			return &types.InvalidVmConfig{Property: "memoryReservationLockedToMax"}
		}
	}
	if l := vm.Config.LatencySensitivity; l != nil && l.Level == types.LatencySensitivitySensitivityLevelHigh &&
		(*vm.Config.CpuAllocation.Reservation < int64(vm.Config.Hardware.NumCPU)*(h.Hardware.CpuInfo.Hz/1_000_000) ||
			*vm.Config.MemoryAllocation.Reservation < int64(vm.Config.Hardware.MemoryMB)) {
		return &types.InvalidVmConfig{Property: "latencySensitivity"}
	}
	return nil
}

func assigned(d *types.VirtualPCIPassthrough) string {
	switch b := d.Backing.(type) {
	case *types.VirtualPCIPassthroughDeviceBackingInfo:
		return b.Id
	case *types.VirtualPCIPassthroughDynamicBackingInfo:
		return b.AssignedId
	}
	return ""
}

func assign(h *simulator.HostSystem, d *types.VirtualPCIPassthrough, taken map[string]bool) bool {
	free := func(id string) bool {
		info := function(h, id)
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
		for _, p := range h.Hardware.PciDevice {
			for _, a := range b.AllowedDevice {
				if uint16(p.VendorId) == uint16(a.VendorId) && uint16(p.DeviceId) == uint16(a.DeviceId) && free(p.Id) {
					b.AssignedId = p.Id
					return true
				}
			}
		}
		return false
	}
	return true // it shares a GPU
}

// HostOf returns a machine's host.
func (s *Server) HostOf(vm *simulator.VirtualMachine) *simulator.HostSystem {
	return s.Model.Map().Get(*vm.Runtime.Host).(*simulator.HostSystem)
}

func function(h *simulator.HostSystem, id string) *types.HostPciPassthruInfo {
	for _, p := range h.Config.PciPassthruInfo {
		if info := p.GetHostPciPassthruInfo(); info.Id == id {
			return info
		}
	}
	return nil
}

func pf(h *simulator.HostSystem, id string) *types.HostSriovInfo {
	for _, p := range h.Config.PciPassthruInfo {
		if info, ok := p.(*types.HostSriovInfo); ok && info.Id == id {
			return info
		}
	}
	return nil
}
