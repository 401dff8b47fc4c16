package vspheretest

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// A HostPciPassthruSystem sets the number of virtual functions. Its name is that of the managed object.
type HostPciPassthruSystem struct {
	mo.HostPciPassthruSystem
	host   *simulator.HostSystem
	server *Server
}

// UpdatePassthruConfig changes a function, or refuses the request.
func (p *HostPciPassthruSystem) UpdatePassthruConfig(_ *simulator.Context,
	req *types.UpdatePassthruConfig) soap.HasFault {
	body := &methods.UpdatePassthruConfigBody{}
	for _, c := range req.Config {
		if !p.update(c) {
			body.Fault_ = simulator.Fault("", &types.InvalidArgument{InvalidProperty: "config"})
			return body
		}
	}
	body.Res = new(types.UpdatePassthruConfigResponse)
	return body
}

func (p *HostPciPassthruSystem) update(c types.BaseHostPciPassthruConfig) bool {
	for _, have := range p.host.Config.PciPassthruInfo {
		info := have.GetHostPciPassthruInfo()
		if info.Id != c.GetHostPciPassthruConfig().Id {
			continue
		}
		sriov, ok := c.(*types.HostSriovConfig)
		if !ok {
			info.PassthruEnabled, info.PassthruActive = c.GetHostPciPassthruConfig().PassthruEnabled,
				c.GetHostPciPassthruConfig().PassthruEnabled
			return true
		}
		s, ok := have.(*types.HostSriovInfo)
		if !ok || sriov.NumVirtualFunction < 0 || sriov.NumVirtualFunction > s.MaxVirtualFunctionSupported {
			return false
		}
		s.SriovEnabled, s.NumVirtualFunctionRequested = sriov.SriovEnabled, sriov.NumVirtualFunction
		if !p.server.NeedsRestart {
			inForce(s)
		}
		return true
	}
	return false
}

// inForce makes the virtual functions that were asked for.
func inForce(s *types.HostSriovInfo) {
	s.SriovActive, s.NumVirtualFunction = s.SriovEnabled, s.NumVirtualFunctionRequested
}

// Restart makes what a restart of the host would.
func (s *Server) Restart() {
	for _, e := range s.Model.Map().All("HostSystem") {
		for _, p := range e.(*simulator.HostSystem).Config.PciPassthruInfo {
			if info, ok := p.(*types.HostSriovInfo); ok {
				inForce(info)
			}
		}
	}
}

// A HostPowerSystem changes the power policy. Its name is that of the managed object.
type HostPowerSystem struct{ mo.HostPowerSystem }

// ConfigurePowerPolicy changes the policy.
func (p *HostPowerSystem) ConfigurePowerPolicy(_ *simulator.Context, req *types.ConfigurePowerPolicy) soap.HasFault {
	body := &methods.ConfigurePowerPolicyBody{}
	for _, policy := range policies {
		if policy.Key == req.Key {
			p.Info.CurrentPolicy = policy
			body.Res = new(types.ConfigurePowerPolicyResponse)
			return body
		}
	}
	body.Fault_ = simulator.Fault("", &types.InvalidArgument{InvalidProperty: "key"})
	return body
}

// A HostKernelModuleSystem has options of modules. Its name is that of the managed object.
type HostKernelModuleSystem struct {
	mo.HostKernelModuleSystem
	options map[string]string
}

// QueryConfiguredModuleOptionString returns the options of a module.
func (m *HostKernelModuleSystem) QueryConfiguredModuleOptionString(_ *simulator.Context,
	req *types.QueryConfiguredModuleOptionString) soap.HasFault {
	body := &methods.QueryConfiguredModuleOptionStringBody{}
	options, ok := m.options[req.Name]
	if !ok {
		body.Fault_ = simulator.Fault("", new(types.NotFound))
		return body
	}
	body.Res = &types.QueryConfiguredModuleOptionStringResponse{Returnval: options}
	return body
}

// UpdateModuleOptionString changes them.
func (m *HostKernelModuleSystem) UpdateModuleOptionString(_ *simulator.Context,
	req *types.UpdateModuleOptionString) soap.HasFault {
	body := &methods.UpdateModuleOptionStringBody{}
	if _, ok := m.options[req.Name]; !ok {
		body.Fault_ = simulator.Fault("", new(types.NotFound))
		return body
	}
	m.options[req.Name] = req.Options
	body.Res = new(types.UpdateModuleOptionStringResponse)
	return body
}
