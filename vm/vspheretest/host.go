package vspheretest

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// Refused answers with a fault. A result beside it is not sent.
func Refused(fault types.BaseMethodFault) *soap.Fault {
	if fault == nil {
		return nil
	}
	return simulator.Fault("", fault)
}

// A HostPciPassthruSystem sets the number of virtual functions; the name is vSphere's.
type HostPciPassthruSystem struct {
	mo.HostPciPassthruSystem
	host   *simulator.HostSystem
	server *Server
}

// UpdatePassthruConfig may refuse.
func (p *HostPciPassthruSystem) UpdatePassthruConfig(_ *simulator.Context,
	req *types.UpdatePassthruConfig) soap.HasFault {
	body := &methods.UpdatePassthruConfigBody{Res: new(types.UpdatePassthruConfigResponse)}
	if slices.ContainsFunc(req.Config, func(c types.BaseHostPciPassthruConfig) bool { return !p.update(c) }) {
		body.Fault_ = Refused(&types.InvalidArgument{InvalidProperty: "config"})
	}
	return body
}

func (p *HostPciPassthruSystem) update(c types.BaseHostPciPassthruConfig) bool {
	id, enabled := c.GetHostPciPassthruConfig().Id, c.GetHostPciPassthruConfig().PassthruEnabled
	vfs, ok := c.(*types.HostSriovConfig)
	if !ok {
		info := function(p.host, id)
		if info != nil {
			info.PassthruEnabled, info.PassthruActive = enabled, enabled
		}
		return info != nil
	}
	s := pf(p.host, id)
	if s == nil || vfs.NumVirtualFunction < 0 || vfs.NumVirtualFunction > s.MaxVirtualFunctionSupported {
		return false
	}
	s.SriovEnabled, s.NumVirtualFunctionRequested = vfs.SriovEnabled, vfs.NumVirtualFunction
	if !p.server.NeedsRestart {
		inForce(s)
	}
	return true
}

func inForce(s *types.HostSriovInfo) {
	s.SriovActive, s.NumVirtualFunction = s.SriovEnabled, s.NumVirtualFunctionRequested
}

// A HostPowerSystem has the power policy; the name is vSphere's.
type HostPowerSystem struct{ mo.HostPowerSystem }

// ConfigurePowerPolicy changes the policy.
func (p *HostPowerSystem) ConfigurePowerPolicy(_ *simulator.Context, req *types.ConfigurePowerPolicy) soap.HasFault {
	i := slices.IndexFunc(policies, func(policy types.HostPowerPolicy) bool { return policy.Key == req.Key })
	if i < 0 {
		return &methods.ConfigurePowerPolicyBody{Fault_: Refused(&types.InvalidArgument{InvalidProperty: "key"})}
	}
	p.Info.CurrentPolicy = policies[i]
	return &methods.ConfigurePowerPolicyBody{Res: new(types.ConfigurePowerPolicyResponse)}
}

// A HostKernelModuleSystem has module options; the name is vSphere's.
type HostKernelModuleSystem struct {
	mo.HostKernelModuleSystem
	options map[string]string
}

// QueryConfiguredModuleOptionString returns options.
func (m *HostKernelModuleSystem) QueryConfiguredModuleOptionString(_ *simulator.Context,
	req *types.QueryConfiguredModuleOptionString) soap.HasFault {
	options, ok := m.options[req.Name]
	if !ok {
		return &methods.QueryConfiguredModuleOptionStringBody{Fault_: Refused(new(types.NotFound))}
	}
	return &methods.QueryConfiguredModuleOptionStringBody{
		Res: &types.QueryConfiguredModuleOptionStringResponse{Returnval: options}}
}

// UpdateModuleOptionString changes options.
func (m *HostKernelModuleSystem) UpdateModuleOptionString(_ *simulator.Context,
	req *types.UpdateModuleOptionString) soap.HasFault {
	if _, ok := m.options[req.Name]; !ok {
		return &methods.UpdateModuleOptionStringBody{Fault_: Refused(new(types.NotFound))}
	}
	m.options[req.Name] = req.Options
	return &methods.UpdateModuleOptionStringBody{Res: new(types.UpdateModuleOptionStringResponse)}
}
