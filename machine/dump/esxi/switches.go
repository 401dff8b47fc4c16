package esxi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// Objects returns the property config of existing objects.
type Objects func(refs []types.ManagedObjectReference) ([]types.ObjectContent, error)

// Kinds of virtual switches.
const (
	standardSwitch    = "standard"
	distributedSwitch = "distributed"
)

// Switches returns a host's standard switches with their port groups, then distributed switches without. uuids has the
// UUID of each distributed switch, and "" for standard ones.
func Switches(network *types.HostNetworkInfo) (all []topology.VirtualSwitch, uuids []string) {
	nics, groups := map[string]string{}, map[string][]topology.PortGroup{}
	for _, p := range network.Pnic {
		nics[p.Key] = p.Device
	}
	for _, g := range network.Portgroup {
		groups[g.Spec.VswitchName] = append(groups[g.Spec.VswitchName],
			topology.PortGroup{Name: g.Spec.Name, VLAN: int(g.Spec.VlanId)})
	}
	add := func(name, kind string, mtu int32, keys []string, groups []topology.PortGroup) {
		s := topology.VirtualSwitch{Name: name, Kind: kind, Uplinks: []string{},
			PortGroups: append([]topology.PortGroup{}, groups...)}
		if mtu > 0 {
			s.MTU = new(int(mtu))
		}
		for _, key := range keys {
			if nic := nics[key]; nic != "" {
				s.Uplinks = append(s.Uplinks, nic)
			}
		}
		slices.Sort(s.Uplinks)
		all = append(all, s)
	}
	for _, s := range network.Vswitch {
		add(s.Name, standardSwitch, s.Mtu, s.Pnic, groups[s.Name])
	}
	uuids = make([]string, len(all))
	for _, s := range network.ProxySwitch {
		add(s.DvsName, distributedSwitch, s.Mtu, s.Pnic, nil)
		uuids = append(uuids, s.DvsUuid)
	}
	return all, uuids
}

// VLAN returns the VLAN of a distributed port group, or 0. more describes a private VLAN or a trunk.
func VLAN(setting types.BaseDVPortSetting) (vlan int, more string) {
	s, ok := setting.(*types.VMwareDVSPortSetting)
	if !ok {
		return 0, ""
	}
	switch v := s.Vlan.(type) {
	case *types.VmwareDistributedVirtualSwitchVlanIdSpec:
		return int(v.VlanId), ""
	case *types.VmwareDistributedVirtualSwitchPvlanSpec:
		return 0, fmt.Sprintf("private %d", v.PvlanId)
	case *types.VmwareDistributedVirtualSwitchTrunkVlanSpec:
		return 0, strings.Join(lists.Map(v.VlanId, func(r types.NumericRange) string {
			if r.Start == r.End {
				return strconv.Itoa(int(r.Start))
			}
			return strconv.Itoa(int(r.Start)) + "-" + strconv.Itoa(int(r.End))
		}), ",")
	}
	return 0, ""
}

// switches needs objects for the port groups and the certain MTU of distributed switches.
func (r *reader) switches(networks []types.ManagedObjectReference, objects Objects) {
	if r.config == nil || r.config.Network == nil {
		return
	}
	all, uuids := Switches(r.config.Network)
	defer func() { r.h.Switches = all }()
	ask := func(refs []types.ManagedObjectReference) (found []types.ObjectContent) {
		if objects == nil || len(refs) == 0 {
			return nil
		}
		found, err := objects(refs)
		if err != nil {
			r.note("distributed switches", err.Error())
		} else if missing := len(refs) - len(found); missing > 0 {
			r.note("distributed switches", fmt.Sprintf("%d of %d are not among the files beside that of the host",
				missing, len(refs)))
		}
		return found
	}
	networks = slices.DeleteFunc(slices.Clone(networks), func(ref types.ManagedObjectReference) bool {
		return ref.Type != "DistributedVirtualPortgroup"
	})
	groups := map[types.ManagedObjectReference][]topology.PortGroup{} // by switch
	var of []types.ManagedObjectReference
	for _, o := range ask(networks[:min(len(networks), maxPortGroups)]) {
		for _, p := range o.PropSet {
			c, ok := p.Val.(types.DVPortgroupConfigInfo)
			if !ok || c.DistributedVirtualSwitch == nil || c.Uplink != nil && *c.Uplink {
				continue
			}
			g := topology.PortGroup{Name: c.Name}
			g.VLAN, g.VLANs = VLAN(c.DefaultPortConfig)
			ref := *c.DistributedVirtualSwitch
			if groups[ref] == nil {
				of = append(of, ref)
			}
			groups[ref] = append(groups[ref], g)
		}
	}
	for _, o := range ask(of) {
		for _, p := range o.PropSet {
			c, ok := p.Val.(types.VMwareDVSConfigInfo)
			if !ok {
				continue
			}
			i := slices.Index(uuids, c.Uuid)
			if i < 0 { // the host has not joined it
				i = len(all)
				all = append(all, topology.VirtualSwitch{Name: c.Name, Kind: distributedSwitch, Uplinks: []string{}})
				uuids = append(uuids, c.Uuid)
			}
			all[i].PortGroups = groups[o.Obj]
			if c.MaxMtu > 0 {
				all[i].MTU = new(int(c.MaxMtu))
			}
		}
	}
}
