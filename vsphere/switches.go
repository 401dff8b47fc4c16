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
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
)

// A switchOp makes a virtual switch, with its uplinks and port groups. It never changes one that it has not made.
type switchOp struct {
	Lab        string         `json:"lab"`
	Datacenter string         `json:"datacenter,omitempty"`
	Host       string         `json:"host"` // of a standard switch
	Name       string         `json:"name"`
	Type       lab.SwitchKind `json:"type"`
	Want       switchState    `json:"want"`
	conn       *Conn
	begun      bool // by an earlier up, which the journal tells
}

// A switchState is what there is of a switch.
type switchState struct {
	Note       string              `json:"note,omitempty"` // the description of a distributed switch: whose it is
	MTU        int                 `json:"mtu"`
	Uplinks    map[string][]string `json:"uplinks"`     // NICs by host
	PortGroups map[string]int      `json:"port_groups"` // VLANs by port group; 0 for none
}

// switchSteps make the switches of the lab.
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
		why := []string{"the lab file asks for it"}
		for _, host := range s.Hosts {
			o.Want.Uplinks[host] = slices.Sorted(slices.Values(s.Uplinks))
			why = append(why, fmt.Sprintf("on %s, with %s", host, words.Either(len(s.Uplinks) > 0,
				"uplinks "+strings.Join(s.Uplinks, ", "), "no uplinks")))
		}
		for _, group := range s.PortGroups {
			o.Want.PortGroups[group] = s.VLAN
			why = append(why, "port group "+group+words.If(s.VLAN > 0, ", VLAN "+strconv.Itoa(s.VLAN)))
		}
		steps = append(steps, change.Step{Op: o, Guard: o.guard, Why: strings.Join(why, "\n"),
			What: fmt.Sprintf("make the %s switch %s, MTU %d", s.Kind, name, s.MTU),
			Risk: words.If(len(s.Uplinks) > 0, "its uplinks belong to it alone")})
	}
	return steps, nil
}

// keepsUplinks refuses a plan that takes an uplink away from the host.
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

// Subject is the switch: a standard one is of its host.
func (o *switchOp) Subject() string {
	return path.Join(words.Either(o.standard(), o.Host, o.Datacenter), o.Name)
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

// look returns what there is; nil for no such switch.
func (o *switchOp) look(ctx context.Context) (*switchState, error) {
	if o.standard() {
		_, info, err := o.network(ctx, o.Host)
		if err != nil {
			return nil, err
		}
		return standardState(info, o.Host, o.Name), nil
	}
	s, config, groups, err := o.distributed(ctx)
	if err != nil || s == nil {
		return nil, err
	}
	have := &switchState{Note: config.Description, MTU: int(config.MaxMtu), Uplinks: map[string][]string{},
		PortGroups: map[string]int{}}
	for _, member := range config.Host {
		name, err := o.conn.hostName(ctx, value(member.Config.Host))
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
		have.PortGroups[g.Config.Name] = vlanOf(g.Config.DefaultPortConfig)
	}
	return have, nil
}

// standardState returns a standard switch of a host; nil for none.
func standardState(info *types.HostNetworkInfo, host, name string) *switchState {
	i := slices.IndexFunc(info.Vswitch, func(s types.HostVirtualSwitch) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	have := &switchState{MTU: int(info.Vswitch[i].Mtu), Uplinks: map[string][]string{host: {}},
		PortGroups: map[string]int{}}
	for _, nic := range info.Pnic {
		if slices.Contains(info.Vswitch[i].Pnic, nic.Key) {
			have.Uplinks[host] = append(have.Uplinks[host], nic.Device)
		}
	}
	slices.Sort(have.Uplinks[host])
	for _, g := range info.Portgroup {
		if g.Spec.VswitchName == name {
			have.PortGroups[g.Spec.Name] = int(g.Spec.VlanId)
		}
	}
	return have
}

// vlanOf returns the VLAN of a port group; 0 for none, or for what is not one VLAN.
func vlanOf(s types.BaseDVPortSetting) int {
	if setting, ok := s.(*types.VMwareDVSPortSetting); ok {
		if vlan, ok := setting.Vlan.(*types.VmwareDistributedVirtualSwitchVlanIdSpec); ok {
			return int(vlan.VlanId)
		}
	}
	return 0
}

// network returns what makes standard switches of a host, and which it has.
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

// child finds what has a name among the networks of the data centre; nil for nothing.
func (o *switchOp) child(ctx context.Context, name string) (*object.Folder, object.Reference, error) {
	folder, err := o.conn.networks(ctx, o.Datacenter)
	if err != nil {
		return nil, nil, err
	}
	found, err := object.NewSearchIndex(o.conn.client.Client).FindChild(ctx, folder, name)
	return folder, found, err
}

// distributed returns the distributed switch, and its port groups but those of its uplinks; nil for none.
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
	groups = slices.DeleteFunc(groups, func(g mo.DistributedVirtualPortgroup) bool { return value(g.Config.Uplink) })
	return s, c, groups, err
}

// foreign returns an error where something of a switch is not the lab's.
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
	return fmt.Errorf("switch %s has %s, which lab %s did not make: take that away first", o.Name,
		strings.Join(others, " and "), o.Lab)
}

// guard refuses a switch whose name, uplinks or port groups are taken.
func (o *switchOp) guard(ctx context.Context, _ *change.System) error {
	have, err := o.look(ctx)
	switch {
	case err != nil:
		return err
	case have != nil && o.standard() && !o.begun:
		// Nothing in it tells whose it is, but the journal.
		return fmt.Errorf("host %s has a switch %s that is not as the lab file says: choose another name", o.Host,
			o.Name)
	case have != nil:
		if err := o.foreign(have); err != nil {
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
		// Standard port groups of several hosts share a name.
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

// freeUplink refuses a NIC that a host does not have, or that another switch has.
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

// Do makes what is missing.
func (o *switchOp) Do(ctx context.Context, _ *change.System) error {
	if o.standard() {
		return o.makeStandard(ctx)
	}
	if err := o.settle(ctx); err != nil {
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
		t, err := folder.CreateDVS(ctx, types.DVSCreateSpec{ConfigSpec: &types.VMwareDVSConfigSpec{
			DVSConfigSpec: types.DVSConfigSpec{Name: o.Name, Description: o.Want.Note, UplinkPortPolicy: ports},
			MaxMtu:        int32(o.Want.MTU)}})
		if err := done(ctx, t, err); err != nil {
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
	t, err := s.AddPortgroup(ctx, specs)
	return done(ctx, t, err)
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

// members takes hosts into the switch, or out of it.
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
	t, err := s.Reconfigure(ctx, spec)
	return done(ctx, t, err)
}

// settle waits for what vCenter does with the switch already.
func (o *switchOp) settle(ctx context.Context) error {
	folder, found, err := o.child(ctx, o.Name)
	if err == nil {
		err = o.conn.settle(ctx, folder.Reference())
	}
	if err == nil && found != nil {
		err = o.conn.settle(ctx, found.Reference())
	}
	return err
}

// Restore removes the switch if it was not there before, and if all of it is the lab's.
func (o *switchOp) Restore(ctx context.Context, _ *change.System, before change.State) error {
	if !o.standard() {
		if err := o.settle(ctx); err != nil {
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
	s, _, groups, err := o.distributed(ctx)
	if err != nil {
		return err
	}
	for _, g := range groups {
		t, err := object.NewDistributedVirtualPortgroup(o.conn.client.Client, g.Self).Destroy(ctx)
		if err := done(ctx, t, err); err != nil {
			return err
		}
	}
	if err := o.members(ctx, types.ConfigSpecOperationRemove, slices.Collect(maps.Keys(have.Uplinks))); err != nil {
		return err
	}
	t, err := s.Destroy(ctx)
	return done(ctx, t, err)
}

// Restored reports whether the switch is gone, unless it was there before.
func (o *switchOp) Restored(before, now change.State) bool { return now == absent || before != absent }

// networks returns the folder of the networks of a data centre.
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

// dvs returns a distributed switch and its configuration.
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
