//go:build linux

package vsphere

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/host/change"
)

// A hostOp changes a setting of a host, or of a switch of the host.
type hostOp struct {
	Host    string `json:"host"`
	Setting string `json:"setting"`
	Of      string `json:"of,omitempty"` // function, module or switch
	Want    string `json:"want"`
	conn    *Conn
}

type hostSetting struct {
	get func(ctx context.Context, o *hostOp, h *object.HostSystem) (string, error)
	set func(ctx context.Context, o *hostOp, h *object.HostSystem, text string) error
}

const (
	hostVFs         = "virtual_functions"
	hostPassthrough = "passthrough"
	hostPower       = "power_policy"
	hostModule      = "module_options"
	switchMTU       = "switch_mtu"
)

var hostSettings = map[string]hostSetting{
	hostVFs: {func(ctx context.Context, o *hostOp, h *object.HostSystem) (string, error) {
		info, err := o.function(ctx, h)
		if err != nil {
			return "", err
		}
		sriov, ok := info.(*types.HostSriovInfo)
		if !ok || !sriov.SriovCapable {
			return "", fmt.Errorf("%s has no virtual functions on host %s", o.Of, o.Host)
		}
		if !sriov.SriovEnabled {
			return "0", nil
		}
		return strconv.Itoa(int(sriov.NumVirtualFunctionRequested)), nil
	}, func(ctx context.Context, o *hostOp, h *object.HostSystem, text string) error {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return err
		}
		return o.update(ctx, h, &types.HostSriovConfig{HostPciPassthruConfig: types.HostPciPassthruConfig{Id: o.Of},
			SriovEnabled: n > 0, NumVirtualFunction: int32(n)})
	}},
	hostPassthrough: {func(ctx context.Context, o *hostOp, h *object.HostSystem) (string, error) {
		info, err := o.function(ctx, h)
		if err != nil {
			return "", err
		}
		return strconv.FormatBool(info.GetHostPciPassthruInfo().PassthruEnabled), nil
	}, func(ctx context.Context, o *hostOp, h *object.HostSystem, text string) error {
		return o.update(ctx, h, &types.HostPciPassthruConfig{Id: o.Of, PassthruEnabled: text == "true"})
	}},
	hostPower: {func(ctx context.Context, o *hostOp, h *object.HostSystem) (string, error) {
		p, err := o.powerSystem(ctx, h)
		if err != nil {
			return "", err
		}
		return p.Info.CurrentPolicy.ShortName, nil
	}, func(ctx context.Context, o *hostOp, h *object.HostSystem, text string) error {
		p, err := o.powerSystem(ctx, h)
		if err != nil {
			return err
		}
		for _, policy := range p.Capability.AvailablePolicy {
			if policy.ShortName == text {
				_, err := methods.ConfigurePowerPolicy(ctx, o.conn.client, &types.ConfigurePowerPolicy{This: p.Self,
					Key: policy.Key})
				return explain(err)
			}
		}
		return fmt.Errorf("host %s has no power policy %s", o.Host, text)
	}},
	hostModule: {func(ctx context.Context, o *hostOp, h *object.HostSystem) (string, error) {
		at, err := o.moduleSystem(ctx, h)
		if err != nil {
			return "", err
		}
		res, err := methods.QueryConfiguredModuleOptionString(ctx, o.conn.client,
			&types.QueryConfiguredModuleOptionString{This: at, Name: o.Of})
		if err != nil {
			return "", fmt.Errorf("module %s of host %s: %w", o.Of, o.Host, err)
		}
		return res.Returnval, nil
	}, func(ctx context.Context, o *hostOp, h *object.HostSystem, text string) error {
		at, err := o.moduleSystem(ctx, h)
		if err != nil {
			return err
		}
		_, err = methods.UpdateModuleOptionString(ctx, o.conn.client,
			&types.UpdateModuleOptionString{This: at, Name: o.Of, Options: text})
		return explain(err)
	}},
	switchMTU: {func(ctx context.Context, o *hostOp, _ *object.HostSystem) (string, error) {
		_, config, err := o.dvs(ctx)
		if err != nil {
			return "", err
		}
		return strconv.Itoa(int(config.MaxMtu)), nil
	}, func(ctx context.Context, o *hostOp, _ *object.HostSystem, text string) error {
		s, config, err := o.dvs(ctx)
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return err
		}
		return finish(ctx)(s.Reconfigure(ctx, &types.VMwareDVSConfigSpec{MaxMtu: int32(n),
			DVSConfigSpec: types.DVSConfigSpec{ConfigVersion: config.ConfigVersion}}))
	}},
}

func (o *hostOp) Kind() string { return kindHost }

func (o *hostOp) Subject() string { return strings.Join([]string{o.Host, o.Setting, o.Of}, " ") }

func (o *hostOp) Done(s change.State) bool { return string(s) == o.Want }

func (o *hostOp) Read(ctx context.Context, _ *change.System) (change.State, error) {
	setting, h, err := o.at(ctx)
	if err != nil {
		return "", err
	}
	text, err := setting.get(ctx, o, h)
	return change.State(text), err
}

func (o *hostOp) Do(ctx context.Context, _ *change.System) error { return o.write(ctx, o.Want) }

func (o *hostOp) Restore(ctx context.Context, s *change.System, before change.State) error {
	if now, err := o.Read(ctx, s); err != nil || now == before {
		return err
	}
	return o.write(ctx, string(before))
}

// Merge implements change.Merger.
func (o *hostOp) Merge(_ context.Context, _ *change.System, u change.Undo) (change.State, []change.Changed, error) {
	return u.Whole(o, o.Done(u.Now), change.Changed{What: "host " + strings.TrimSpace(o.Subject()),
		Found: string(u.Now), Set: o.Want})
}

func (o *hostOp) write(ctx context.Context, text string) error {
	setting, h, err := o.at(ctx)
	if err != nil {
		return err
	}
	return setting.set(ctx, o, h, text)
}

func (o *hostOp) at(ctx context.Context) (hostSetting, *object.HostSystem, error) {
	s, ok := hostSettings[o.Setting]
	if !ok {
		return s, nil, fmt.Errorf("setting %q of a host is not known to this version of rackless", o.Setting)
	}
	h, err := o.conn.host(ctx, o.Host)
	return s, h, err
}

func (o *hostOp) function(ctx context.Context, h *object.HostSystem) (types.BaseHostPciPassthruInfo, error) {
	var have mo.HostSystem
	if err := h.Properties(ctx, h.Reference(), []string{"config.pciPassthruInfo"}, &have); err != nil {
		return nil, err
	}
	if have.Config != nil {
		for _, p := range have.Config.PciPassthruInfo {
			if p.GetHostPciPassthruInfo().Id == o.Of {
				return p, nil
			}
		}
	}
	return nil, fmt.Errorf("host %s has no function %s that can be passed through", o.Host, o.Of)
}

func (o *hostOp) update(ctx context.Context, h *object.HostSystem, c types.BaseHostPciPassthruConfig) error {
	at, err := o.manager(ctx, h, "passes nothing through",
		func(m *types.HostConfigManager) *types.ManagedObjectReference { return m.PciPassthruSystem })
	if err != nil {
		return err
	}
	_, err = methods.UpdatePassthruConfig(ctx, o.conn.client, &types.UpdatePassthruConfig{This: at,
		Config: []types.BaseHostPciPassthruConfig{c}})
	return explain(err)
}

// manager returns the object for a group of settings. lacks describes a host without it.
func (o *hostOp) manager(ctx context.Context, h *object.HostSystem, lacks string,
	of func(*types.HostConfigManager) *types.ManagedObjectReference) (at types.ManagedObjectReference, err error) {
	var have mo.HostSystem
	err = h.Properties(ctx, h.Reference(), []string{"configManager"}, &have)
	if err != nil {
		return at, err
	}
	manager := of(&have.ConfigManager)
	if manager == nil {
		return at, fmt.Errorf("host %s %s", o.Host, lacks)
	}
	return *manager, nil
}

func (o *hostOp) moduleSystem(ctx context.Context, h *object.HostSystem) (types.ManagedObjectReference, error) {
	return o.manager(ctx, h, "has no options of modules",
		func(m *types.HostConfigManager) *types.ManagedObjectReference { return m.KernelModuleSystem })
}

func (o *hostOp) powerSystem(ctx context.Context, h *object.HostSystem) (*mo.HostPowerSystem, error) {
	at, err := o.manager(ctx, h, "has no power policies",
		func(m *types.HostConfigManager) *types.ManagedObjectReference { return m.PowerSystem })
	if err != nil {
		return nil, err
	}
	p := &mo.HostPowerSystem{}
	err = h.Properties(ctx, at, []string{"info", "capability"}, p)
	p.Self = at
	return p, err
}

func (o *hostOp) dvs(ctx context.Context) (*object.DistributedVirtualSwitch, *types.VMwareDVSConfigInfo, error) {
	var ref types.ManagedObjectReference
	if !ref.FromString(o.Of) {
		return nil, nil, fmt.Errorf("%q is not a distributed switch", o.Of)
	}
	return o.conn.dvs(ctx, ref)
}
