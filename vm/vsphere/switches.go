//go:build linux

package vsphere

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/dump/esxi"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// A switchOp makes a virtual switch, with uplinks and port groups. It never changes a switch that it has not made.
type switchOp struct {
	Lab        string         `json:"lab"`
	Datacenter string         `json:"datacenter,omitempty"`
	Host       string         `json:"host"` // for a standard switch
	Name       string         `json:"name"`
	Type       lab.SwitchKind `json:"type"`
	Want       switchState    `json:"want"`
	conn       *Conn
	begun      bool // by an earlier up (journal)
}

type switchState struct {
	Note       string              `json:"note,omitempty"` // of a distributed switch; names its owner
	MTU        int                 `json:"mtu"`
	Uplinks    map[string][]string `json:"uplinks"`     // NICs by host
	PortGroups map[string]int      `json:"port_groups"` // by port group; 0 means none
}

func (m *maker) switchSteps() (steps []change.Step, err error) {
	v := m.lab.VSphere
	for _, name := range slices.Sorted(maps.Keys(v.Switches)) {
		s := v.Switches[name]
		if err := m.keepsUplinks(s); err != nil {
			return nil, fmt.Errorf("vsphere.switches.%s: %w", name, err)
		}
		o := &switchOp{Lab: m.lab.Name, Datacenter: v.Datacenter, Host: v.Host, Name: name, Type: s.Kind, conn: m.conn,
			Want: switchState{MTU: s.MTU, Uplinks: map[string][]string{}, PortGroups: map[string]int{}}}
		if s.Kind == lab.SwitchDistributed {
			o.Want.Note = "made by rackless for lab " + m.lab.Name
		}
		uplinks, risk := "no uplinks", ""
		if len(s.Uplinks) > 0 {
			uplinks, risk = "uplinks "+strings.Join(s.Uplinks, ", "), "its uplinks belong to it alone"
		}
		why := []string{"the lab file asks for it"}
		for _, host := range s.Hosts {
			o.Want.Uplinks[host] = slices.Sorted(slices.Values(s.Uplinks))
			why = append(why, fmt.Sprintf("on %s, with %s", host, uplinks))
		}
		for _, group := range s.PortGroups {
			o.Want.PortGroups[group] = s.VLAN
			portGroup := "port group " + group
			if s.VLAN > 0 {
				portGroup += ", VLAN " + strconv.Itoa(s.VLAN)
			}
			why = append(why, portGroup)
		}
		steps = append(steps, change.Step{Op: o, Guard: o.guard, Why: strings.Join(why, "\n"),
			What: fmt.Sprintf("make the %s switch %s, MTU %d", s.Kind, name, s.MTU),
			Risk: risk})
	}
	return steps, nil
}

// keepsUplinks refuses to take an uplink from the host.
func (m *maker) keepsUplinks(s *lab.Switch) error {
	for i := range m.host.NICs {
		nic := &m.host.NICs[i]
		name := slices.IndexFunc(s.Uplinks, func(u string) bool { return slices.Contains(nic.Netdevs, u) })
		for j := range m.plan.Nodes {
			n := &m.plan.Nodes[j]
			if name >= 0 && slices.ContainsFunc(n.Cards, func(c plan.NodeDevice) bool {
				return c.Kind != plan.KindVF && c.ID == nic.ID()
			}) {
				return fmt.Errorf("uplink %s is %s, which node %s gets as a whole: choose another, or ask for vfs in "+
					"place of nics", s.Uplinks[name], nic.ID(), n.Name)
			}
		}
	}
	return nil
}

func (o *switchOp) Kind() string { return kindSwitch }

func (o *switchOp) standard() bool { return o.Type == lab.SwitchStandard }

// Subject names a standard switch with its host.
func (o *switchOp) Subject() string {
	if o.standard() {
		return path.Join(o.Host, o.Name)
	}
	return path.Join(o.Datacenter, o.Name)
}

func (o *switchOp) Read(ctx context.Context, _ *change.System) (change.State, error) {
	have, err := o.look(ctx)
	if err != nil || have == nil {
		return absent, err
	}
	return change.Encode(have, nil)
}

func (o *switchOp) Done(s change.State) bool {
	want, err := change.Encode(&o.Want, nil)
	return err == nil && s == want
}

func (o *switchOp) look(ctx context.Context) (*switchState, error) {
	if o.standard() {
		_, info, err := o.network(ctx, o.Host)
		if err != nil {
			return nil, err
		}
		return standardState(info, o.Host, o.Name), nil
	}
	return o.lookDistributed(ctx)
}

func standardState(info *types.HostNetworkInfo, host, name string) *switchState {
	all, _ := esxi.Switches(info)
	i := slices.IndexFunc(all[:len(info.Vswitch)], func(s topology.VirtualSwitch) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	have := &switchState{MTU: int(info.Vswitch[i].Mtu), Uplinks: map[string][]string{host: all[i].Uplinks},
		PortGroups: map[string]int{}}
	for _, g := range all[i].PortGroups {
		have.PortGroups[g.Name] = g.VLAN
	}
	return have
}

func (o *switchOp) network(ctx context.Context, host string) (*object.HostNetworkSystem, *types.HostNetworkInfo,
	error) {
	h, err := o.conn.host(ctx, host)
	if err != nil {
		return nil, nil, err
	}
	n, err := h.ConfigManager().NetworkSystem(ctx)
	if err != nil {
		return nil, nil, err
	}
	var have mo.HostNetworkSystem
	err = n.Properties(ctx, n.Reference(), []string{"networkInfo"}, &have)
	if err == nil && have.NetworkInfo == nil {
		err = fmt.Errorf("the network of host %s cannot be read: is it connected?", host)
	}
	return n, have.NetworkInfo, err
}

// foreign fails if a part is not the lab's.
func (o *switchOp) foreign(have *switchState) error {
	if have.Note != o.Want.Note {
		return fmt.Errorf("switch %s is there, and not of lab %s: choose another name, or leave it out of "+
			"vsphere.switches and use its port groups", o.Name, o.Lab)
	}
	var others []string
	for host, nics := range have.Uplinks {
		want, ok := o.Want.Uplinks[host]
		if !ok {
			others = append(others, "host "+host)
			continue
		}
		for _, nic := range nics {
			if !slices.Contains(want, nic) {
				others = append(others, "uplink "+nic+" of "+host)
			}
		}
	}
	for group := range have.PortGroups {
		if _, ok := o.Want.PortGroups[group]; !ok {
			others = append(others, "port group "+group)
		}
	}
	if len(others) == 0 {
		return nil
	}
	slices.Sort(others)
	return fmt.Errorf("switch %s has %s, which lab %s does not have: take that away first", o.Name,
		strings.Join(others, " and "), o.Lab)
}

// part reports whether existing parts are as wanted; further ones may be missing.
func (o *switchOp) part(have *switchState) bool {
	for group, vlan := range have.PortGroups {
		if o.Want.PortGroups[group] != vlan {
			return false
		}
	}
	for host, nics := range have.Uplinks {
		if !slices.Equal(nics, o.Want.Uplinks[host]) {
			return false
		}
	}
	return have.MTU == o.Want.MTU
}

// guard refuses taken names, uplinks or port groups.
func (o *switchOp) guard(ctx context.Context, _ *change.System) error {
	have, err := o.look(ctx)
	switch {
	case err != nil:
		return err
	case have != nil && o.standard() && !o.begun:
		// Only the journal knows a standard switch's owner.
		return fmt.Errorf("host %s has a switch %s that is not as the lab file says: choose another name", o.Host,
			o.Name)
	case have != nil:
		err := o.foreign(have)
		if err == nil && !o.part(have) {
			err = fmt.Errorf("switch %s is not as the lab file says, and is not changed while it is there: rackless "+
				"down %s, then up", o.Name, o.Lab)
		}
		if err != nil {
			return err
		}
	default:
		have = &switchState{}
	}
	for host, uplinks := range o.Want.Uplinks {
		_, info, err := o.network(ctx, host)
		if err != nil {
			return err
		}
		for _, nic := range uplinks {
			if err := o.freeUplink(info, host, nic); err != nil {
				return err
			}
		}
	}
	for group := range o.Want.PortGroups {
		if _, ours := have.PortGroups[group]; ours {
			continue
		}
		_, found, err := o.child(ctx, group)
		if err != nil {
			return err
		}
		// Hosts may share names of standard port groups.
		taken := found != nil && !(o.standard() && found.Reference().Type == "Network")
		if o.standard() && !taken {
			_, info, err := o.network(ctx, o.Host)
			if err != nil {
				return err
			}
			taken = slices.ContainsFunc(info.Portgroup, func(g types.HostPortGroup) bool {
				return g.Spec.Name == group
			})
		}
		if taken {
			return fmt.Errorf("port group %s is there, in another switch: choose another name", group)
		}
	}
	return nil
}

// freeUplink refuses a missing or used NIC.
func (o *switchOp) freeUplink(info *types.HostNetworkInfo, host, nic string) error {
	i := slices.IndexFunc(info.Pnic, func(p types.PhysicalNic) bool { return p.Device == nic })
	if i < 0 {
		return fmt.Errorf("host %s has no NIC %s; it has %s", host, nic,
			strings.Join(lists.Map(info.Pnic, func(p types.PhysicalNic) string { return p.Device }), ", "))
	}
	taken := func(name string, nics []string) error {
		if name != o.Name && slices.Contains(nics, info.Pnic[i].Key) {
			return fmt.Errorf("NIC %s of host %s is an uplink of switch %s: choose another", nic, host, name)
		}
		return nil
	}
	for _, s := range info.Vswitch {
		if err := taken(s.Name, s.Pnic); err != nil {
			return err
		}
	}
	for _, s := range info.ProxySwitch {
		if err := taken(s.DvsName, s.Pnic); err != nil {
			return err
		}
	}
	return nil
}

// Do makes the missing parts.
func (o *switchOp) Do(ctx context.Context, _ *change.System) error {
	if o.standard() {
		return o.makeStandard(ctx)
	}
	return o.makeDistributed(ctx)
}

func (o *switchOp) makeStandard(ctx context.Context) error {
	n, info, err := o.network(ctx, o.Host)
	if err != nil {
		return err
	}
	have := standardState(info, o.Host, o.Name)
	if have == nil {
		spec := &types.HostVirtualSwitchSpec{NumPorts: 128, Mtu: int32(o.Want.MTU)}
		if nics := o.Want.Uplinks[o.Host]; len(nics) > 0 {
			spec.Bridge = &types.HostVirtualSwitchBondBridge{NicDevice: nics}
		}
		if err := n.AddVirtualSwitch(ctx, o.Name, spec); err != nil {
			return explain(err)
		}
		have = &switchState{}
	}
	for _, group := range slices.Sorted(maps.Keys(o.Want.PortGroups)) {
		if _, there := have.PortGroups[group]; there {
			continue
		}
		if err := n.AddPortGroup(ctx, types.HostPortGroupSpec{Name: group, VswitchName: o.Name,
			VlanId: int32(o.Want.PortGroups[group])}); err != nil {
			return explain(err)
		}
	}
	return nil
}

// Restore removes the switch if it is new and all of it is the lab's.
func (o *switchOp) Restore(ctx context.Context, _ *change.System, before change.State) error {
	if !o.standard() {
		if err := o.awaitTasks(ctx); err != nil {
			return err
		}
	}
	have, err := o.look(ctx)
	if err != nil || have == nil || before != absent {
		return err
	}
	if err := o.foreign(have); err != nil {
		return err
	}
	if o.standard() {
		return o.removeStandard(ctx, have)
	}
	return o.removeDistributed(ctx, have)
}

func (o *switchOp) removeStandard(ctx context.Context, have *switchState) error {
	n, _, err := o.network(ctx, o.Host)
	if err != nil {
		return err
	}
	for group := range have.PortGroups {
		if err := n.RemovePortGroup(ctx, group); err != nil {
			return explain(err)
		}
	}
	return explain(n.RemoveVirtualSwitch(ctx, o.Name))
}

// Restored reports whether the switch is gone, or existed before.
func (o *switchOp) Restored(before, now change.State) bool { return now == absent || before != absent }
