//go:build linux

package vsphere

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/machine/dump/esxi"
)

func (o *switchOp) child(ctx context.Context, name string) (*object.Folder, object.Reference, error) {
	folder, err := o.conn.networks(ctx, o.Datacenter)
	if err != nil {
		return nil, nil, err
	}
	found, err := object.NewSearchIndex(o.conn.client.Client).FindChild(ctx, folder, name)
	return folder, found, err
}

// distributed omits uplink groups; all are nil if there is no switch.
func (o *switchOp) distributed(ctx context.Context) (s *object.DistributedVirtualSwitch, c *types.VMwareDVSConfigInfo,
	groups []mo.DistributedVirtualPortgroup, err error) {
	_, found, err := o.child(ctx, o.Name)
	if err != nil || found == nil {
		return nil, nil, nil, err
	}
	if !strings.HasSuffix(found.Reference().Type, "DistributedVirtualSwitch") {
		return nil, nil, nil, fmt.Errorf("%s is there, and is no distributed switch", o.Name)
	}
	if s, c, err = o.conn.dvs(ctx, found.Reference()); err != nil {
		return nil, nil, nil, err
	}
	var have mo.DistributedVirtualSwitch
	if err := s.Properties(ctx, s.Reference(), []string{"portgroup"}, &have); err != nil {
		return nil, nil, nil, err
	}
	if len(have.Portgroup) > 0 {
		err = property.DefaultCollector(o.conn.client.Client).Retrieve(ctx, have.Portgroup, []string{"config"}, &groups)
	}
	groups = slices.DeleteFunc(groups, func(g mo.DistributedVirtualPortgroup) bool {
		return g.Config.Uplink != nil && *g.Config.Uplink
	})
	return s, c, groups, err
}

func (o *switchOp) members(ctx context.Context, op types.ConfigSpecOperation, hosts []string) error {
	if len(hosts) == 0 {
		return nil
	}
	s, config, _, err := o.distributed(ctx)
	if err != nil || s == nil {
		return err
	}
	spec := &types.VMwareDVSConfigSpec{DVSConfigSpec: types.DVSConfigSpec{ConfigVersion: config.ConfigVersion},
		MaxMtu: config.MaxMtu}
	slices.Sort(hosts)
	for _, host := range hosts {
		h, err := o.conn.host(ctx, host)
		if err != nil {
			return err
		}
		backing := &types.DistributedVirtualSwitchHostMemberPnicBacking{}
		for _, nic := range o.Want.Uplinks[host] {
			backing.PnicSpec = append(backing.PnicSpec,
				types.DistributedVirtualSwitchHostMemberPnicSpec{PnicDevice: nic})
		}
		member := types.DistributedVirtualSwitchHostMemberConfigSpec{Operation: string(op), Host: h.Reference()}
		if op == types.ConfigSpecOperationAdd {
			member.Backing = backing
		}
		spec.Host = append(spec.Host, member)
	}
	return finish(ctx)(s.Reconfigure(ctx, spec))
}

func (o *switchOp) awaitTasks(ctx context.Context) error {
	folder, found, err := o.child(ctx, o.Name)
	if err == nil {
		err = o.conn.awaitTasks(ctx, folder.Reference())
	}
	if err == nil && found != nil {
		err = o.conn.awaitTasks(ctx, found.Reference())
	}
	return err
}

func (c *Conn) networks(ctx context.Context, datacenter string) (*object.Folder, error) {
	f, _, err := c.place(ctx, datacenter, "")
	if err != nil {
		return nil, err
	}
	dc, err := f.DatacenterOrDefault(ctx, datacenter)
	if err != nil {
		return nil, err
	}
	folders, err := dc.Folders(ctx)
	if err != nil {
		return nil, err
	}
	return folders.NetworkFolder, nil
}

func (c *Conn) dvs(ctx context.Context, ref types.ManagedObjectReference) (*object.DistributedVirtualSwitch,
	*types.VMwareDVSConfigInfo, error) {
	s := object.NewDistributedVirtualSwitch(c.client.Client, ref)
	var have mo.DistributedVirtualSwitch
	if err := s.Properties(ctx, s.Reference(), []string{"config"}, &have); err != nil {
		return nil, nil, err
	}
	config, ok := have.Config.(*types.VMwareDVSConfigInfo)
	if !ok {
		return nil, nil, fmt.Errorf("switch %s is not one of VMware's", ref.Value)
	}
	return s, config, nil
}

func (o *switchOp) lookDistributed(ctx context.Context) (*switchState, error) {
	s, config, groups, err := o.distributed(ctx)
	if err != nil || s == nil {
		return nil, err
	}
	have := &switchState{Note: config.Description, MTU: int(config.MaxMtu), Uplinks: map[string][]string{},
		PortGroups: map[string]int{}}
	for _, member := range config.Host {
		var host types.ManagedObjectReference
		if member.Config.Host != nil {
			host = *member.Config.Host
		}
		name, err := o.conn.hostName(ctx, host)
		if err != nil {
			return nil, err
		}
		nics := []string{}
		if b, ok := member.Config.Backing.(*types.DistributedVirtualSwitchHostMemberPnicBacking); ok {
			for _, nic := range b.PnicSpec {
				nics = append(nics, nic.PnicDevice)
			}
		}
		slices.Sort(nics)
		have.Uplinks[name] = nics
	}
	for _, g := range groups {
		have.PortGroups[g.Config.Name], _ = esxi.VLAN(g.Config.DefaultPortConfig)
	}
	return have, nil
}

func (o *switchOp) makeDistributed(ctx context.Context) error {
	if err := o.awaitTasks(ctx); err != nil {
		return err
	}
	folder, found, err := o.child(ctx, o.Name)
	if err != nil {
		return err
	}
	if found == nil {
		ports := &types.DVSNameArrayUplinkPortPolicy{}
		for i := range max(1, len(o.Want.Uplinks[o.Host])) {
			ports.UplinkPortName = append(ports.UplinkPortName, fmt.Sprintf("uplink%d", i+1))
		}
		if err := finish(ctx)(folder.CreateDVS(ctx, types.DVSCreateSpec{ConfigSpec: &types.VMwareDVSConfigSpec{
			DVSConfigSpec: types.DVSConfigSpec{Name: o.Name, Description: o.Want.Note, UplinkPortPolicy: ports},
			MaxMtu:        int32(o.Want.MTU)}})); err != nil {
			return err
		}
	}
	have, err := o.look(ctx)
	if err != nil {
		return err
	}
	if err := o.foreign(have); err != nil {
		return err
	}
	var hosts []string
	for host := range o.Want.Uplinks {
		if have.Uplinks[host] == nil {
			hosts = append(hosts, host)
		}
	}
	if err := o.members(ctx, types.ConfigSpecOperationAdd, hosts); err != nil {
		return err
	}
	var specs []types.DVPortgroupConfigSpec
	for _, group := range slices.Sorted(maps.Keys(o.Want.PortGroups)) {
		if _, there := have.PortGroups[group]; !there {
			specs = append(specs, types.DVPortgroupConfigSpec{Name: group, AutoExpand: new(true), NumPorts: 8,
				Type: string(types.DistributedVirtualPortgroupPortgroupTypeEarlyBinding),
				DefaultPortConfig: &types.VMwareDVSPortSetting{Vlan: &types.VmwareDistributedVirtualSwitchVlanIdSpec{
					VlanId: int32(o.Want.PortGroups[group])}}})
		}
	}
	if len(specs) == 0 {
		return nil
	}
	s, _, _, err := o.distributed(ctx)
	if err != nil {
		return err
	}
	return finish(ctx)(s.AddPortgroup(ctx, specs))
}

// removeDistributed removes port groups and members first: a switch with some may be in use.
func (o *switchOp) removeDistributed(ctx context.Context, have *switchState) error {
	s, _, groups, err := o.distributed(ctx)
	if err != nil {
		return err
	}
	for _, g := range groups {
		group := object.NewDistributedVirtualPortgroup(o.conn.client.Client, g.Self)
		if err := finish(ctx)(group.Destroy(ctx)); err != nil {
			return err
		}
	}
	if err := o.members(ctx, types.ConfigSpecOperationRemove, slices.Collect(maps.Keys(have.Uplinks))); err != nil {
		return err
	}
	return finish(ctx)(s.Destroy(ctx))
}
