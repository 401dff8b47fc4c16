//go:build linux

package vsphere

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// Steps lead from the present state to a lab's planned nodes, for [Make]: first the host and its switches, then each
// virtual machine, and all starts last. It changes nothing.
func Steps(ctx context.Context, c *Conn, l *lab.Lab, p *plan.Plan, h *topology.Host) ([]change.Step, error) {
	m := &maker{conn: c, lab: l, plan: p, host: h}
	if err := m.look(ctx); err != nil {
		return nil, fmt.Errorf("lab %s: %w", l.Name, err)
	}
	steps, err := m.hostSteps(ctx)
	if err != nil {
		return nil, fmt.Errorf("lab %s: %w", l.Name, err)
	}
	switches, err := m.switchSteps()
	if err != nil {
		return nil, fmt.Errorf("lab %s: %w", l.Name, err)
	}
	steps = append(steps, switches...)
	var starts []change.Step
	for i := range p.Nodes {
		node, start, err := m.nodeSteps(ctx, i)
		if err != nil {
			return nil, fmt.Errorf("lab %s: node %s: %w", l.Name, p.Nodes[i].Name, err)
		}
		steps, starts = append(steps, node...), append(starts, start)
	}
	return append(steps, starts...), nil
}

// Make is [change.Make], but nodes that move first lose everything on the old host: they are stopped, and the lab's
// changes there are undone.
func Make(ctx context.Context, j *change.Journal, steps []change.Step, progress func(change.Result)) (
	[]change.Result, error) {
	begun := map[string]bool{}
	for _, e := range j.Entries() {
		begun[e.Op.Subject()] = begun[e.Op.Subject()] || e.Op.Kind() == kindSwitch && e.Before == absent
	}
	var clones []change.Step
	moves := false
	for _, s := range steps {
		switch o := s.Op.(type) {
		case *switchOp:
			o.begun = begun[o.Subject()]
		case *cloneOp:
			now, err := o.Read(ctx, nil)
			if err != nil {
				return nil, err
			}
			clones, moves = append(clones, s), moves || o.from(now) != ""
		}
	}
	if moves {
		if r, err := change.Make(ctx, new(change.System), j, clones, nil); err != nil {
			return r, err
		}
	}
	return change.Make(ctx, new(change.System), j, steps, progress)
}

type maker struct {
	conn *Conn
	lab  *lab.Lab
	plan *plan.Plan
	host *topology.Host

	finder   *find.Finder // of the data centre
	template *vmConfig
	system   string   // passthrough's name of the host
	network  string   // of virtual functions, as from networkText; or ""
	networks []string // of other adapters, the template's first
	first    int      // has the lab file's address
	late     bool     // networks do not all exist yet
	switches []dvs    // their distributed switches
	restart  bool     // the host must restart before a node starts
}

type dvs struct {
	ref   string
	group string // by which it was found
	mtu   int32
}

// look finds all named objects, so that nothing starts that cannot finish.
func (m *maker) look(ctx context.Context) error {
	v := m.lab.VSphere
	f, _, err := m.conn.place(ctx, v.Datacenter, v.Folder)
	if err != nil {
		return err
	}
	m.finder = f
	template, err := f.VirtualMachine(ctx, v.Template)
	if err != nil {
		return err
	}
	var have mo.VirtualMachine
	if err := template.Properties(ctx, template.Reference(), []string{"config"}, &have); err != nil {
		return err
	}
	if m.template = have.Config; m.template == nil {
		return fmt.Errorf("the configuration of %s cannot be read", v.Template)
	}
	efi := string(types.GuestOsDescriptorFirmwareTypeEfi)
	if on, _ := strconv.ParseBool(v.Settings["secure_boot"]); on && m.template.Firmware != efi {
		return fmt.Errorf("vsphere.settings.secure_boot: %s boots by %s: secure boot needs a template that boots "+
			"by EFI", v.Template, strings.ToUpper(m.template.Firmware))
	}
	if m.system, err = m.systemID(ctx); err != nil {
		return err
	}
	clone := &cloneOp{machine: m.conn.machine(m.lab, ""), Host: v.Host, Datastore: v.Datastore, Pool: v.ResourcePool}
	if _, err := clone.location(ctx); err != nil {
		return err
	}
	if m.network, err = m.networkOf(ctx, v.PortGroup); err != nil {
		return err
	}
	if err := m.noteSwitch(ctx, v.PortGroup); err != nil {
		return err
	}
	if err := m.lookNetworks(ctx); err != nil {
		return err
	}
	m.late = slices.ContainsFunc(append([]string{m.network}, m.networks...), func(text string) bool {
		return strings.HasSuffix(text, toCome)
	})
	return nil
}

// toCome marks a port group that has no key yet.
const toCome = "@(to be made)"

// lookNetworks is about adapters except virtual functions: the template's, then in the order in which settings adds
// them.
func (m *maker) lookNetworks(ctx context.Context) error {
	m.networks = nil
	for _, d := range m.template.Hardware.Device {
		if text, ok := cardText(d); ok {
			m.networks = append(m.networks, text)
		}
	}
	own := len(m.networks)
	first := ""
	for i, name := range m.lab.VSphere.Networks {
		text, err := m.networkOf(ctx, name)
		if err != nil {
			return err
		}
		if i == 0 {
			first = text
		}
		m.networks = lists.Add(m.networks, text)
	}
	slices.Sort(m.networks[own:])
	m.first = max(0, slices.Index(m.networks, first))
	return nil
}

func (m *maker) networkOf(ctx context.Context, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	_, own := m.lab.VSphere.SwitchOf(name)
	if own != nil && own.Kind == lab.SwitchStandard {
		return name, nil
	}
	n, err := m.finder.Network(ctx, name)
	if _, missing := errors.AsType[*find.NotFoundError](err); missing && own != nil {
		return name + toCome, nil
	}
	if err != nil {
		return "", err
	}
	backing, err := n.EthernetCardBackingInfo(ctx)
	if err != nil {
		return "", err
	}
	return networkText(backing), nil
}

// noteSwitch records a distributed switch, so that its MTU is set to the fabric's. The lab's own already have it.
func (m *maker) noteSwitch(ctx context.Context, name string) error {
	if _, own := m.lab.VSphere.SwitchOf(name); own != nil || name == "" {
		return nil
	}
	n, err := m.finder.Network(ctx, name)
	if err != nil {
		return err
	}
	group, ok := n.(*object.DistributedVirtualPortgroup)
	if !ok {
		return nil
	}
	var of mo.DistributedVirtualPortgroup
	err = group.Properties(ctx, group.Reference(), []string{"config.distributedVirtualSwitch"}, &of)
	if err != nil || of.Config.DistributedVirtualSwitch == nil {
		return err
	}
	ref := of.Config.DistributedVirtualSwitch.String()
	_, config, err := (&hostOp{Of: ref, conn: m.conn}).dvs(ctx)
	if err == nil && !slices.ContainsFunc(m.switches, func(s dvs) bool { return s.ref == ref }) {
		m.switches = append(m.switches, dvs{ref, name, config.MaxMtu})
	}
	return err
}

// named also writes the networks' keys into the settings.
func (m *maker) named(o *settingsOp) func(context.Context, *change.System) (bool, error) {
	return func(ctx context.Context, _ *change.System) (bool, error) {
		v := m.lab.VSphere
		for _, name := range append([]string{v.PortGroup}, v.Networks...) {
			text, err := m.networkOf(ctx, name)
			if err != nil || strings.HasSuffix(text, toCome) {
				return false, err
			}
			for key, was := range o.Want {
				o.Want[key] = strings.ReplaceAll(was, name+toCome, text)
			}
		}
		if len(v.Networks) > 0 {
			if err := m.lookNetworks(ctx); err != nil {
				return false, err
			}
			o.Want["networks"] = m.adapters()
		}
		return true, nil
	}
}

func (m *maker) systemID(ctx context.Context) (string, error) {
	h, err := m.conn.host(ctx, m.lab.VSphere.Host)
	if err != nil {
		return "", err
	}
	var have mo.HostSystem
	if err := h.Properties(ctx, h.Reference(), []string{"parent"}, &have); err != nil || have.Parent == nil {
		return "", err
	}
	b, err := object.NewComputeResource(m.conn.client.Client, *have.Parent).EnvironmentBrowser(ctx)
	if err != nil {
		return "", err
	}
	target, err := b.QueryConfigTarget(ctx, h)
	if err != nil || target == nil {
		return "", err
	}
	for _, p := range target.PciPassthrough {
		return p.GetVirtualMachinePciPassthroughInfo().SystemId, nil
	}
	return "", nil
}

func (m *maker) hostSteps(ctx context.Context) (steps []change.Step, err error) {
	add := func(setting, of, want, what, why, risk string) *change.Step {
		steps = append(steps, change.Step{What: what, Why: why, Risk: risk,
			Op: &hostOp{Host: m.lab.VSphere.Host, Setting: setting, Of: of, Want: want, conn: m.conn}})
		return &steps[len(steps)-1]
	}
	host := m.lab.VSphere.Host
	if policy := m.lab.VSphere.PowerPolicy; policy != "" {
		add(hostPower, "", string(policy), fmt.Sprintf("set the power policy of %s to %s", host, policy),
			"the lab file asks for it", "all virtual machines of the host")
	}
	for _, s := range m.switches {
		mtu := max(s.mtu, int32(m.lab.Fabric.MTU))
		add(switchMTU, s.ref, strconv.Itoa(int(mtu)), fmt.Sprintf("raise the MTU of the switch of %s from %d to %d",
			s.group, s.mtu, mtu), "the fabric of the lab has this MTU",
			"all hosts of the switch; their links may go down for a moment")
	}
	modules := m.lab.VSphere.Modules
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		s := add(hostModule, name, modules[name], fmt.Sprintf("set the options of module %s of %s to %s", name, host,
			modules[name]), "the lab file asks for it", "in force after a restart of the host")
		s.Boot = true
		now, err := s.Op.Read(ctx, nil)
		if err != nil {
			return nil, err
		}
		m.restart = m.restart || !s.Op.Done(now)
	}
	for _, pf := range m.plan.VFs {
		want := max(pf.Count, m.enabledVFs(pf.PF))
		s := add(hostVFs, pf.PF, strconv.Itoa(want),
			fmt.Sprintf("give %s of %s %s", pf.PF, host, words.Count(want, "virtual function")),
			fmt.Sprintf("the lab takes %d of them", pf.Lab), "some drivers want the host restarted for it")
		s.Boot, s.InForce = true, m.inForce(s.Op.(*hostOp))
	}
	for i := range m.plan.Nodes {
		for _, card := range m.plan.Nodes[i].Cards {
			if card.Kind != plan.KindVF {
				add(hostPassthrough, card.ID, "true", fmt.Sprintf("pass %s of %s through", card.ID, host),
					fmt.Sprintf("node %s gets it", m.plan.Nodes[i].Name), "the host loses the device")
			}
		}
	}
	return steps, nil
}

// enabledVFs returns the present number of a PF's virtual functions, which may be in use.
func (m *maker) enabledVFs(pf string) int {
	for i := range m.host.PCI {
		d := &m.host.PCI[i]
		if d.Address.String() != pf || d.SRIOV == nil {
			continue
		}
		if d.SRIOV.Enabled == nil {
			return 0
		}
		return *d.SRIOV.Enabled
	}
	return 0
}

// inForce reports whether the virtual functions exist; otherwise they wait for a restart of the host.
func (m *maker) inForce(o *hostOp) func(context.Context, *change.System) (bool, error) {
	return func(ctx context.Context, _ *change.System) (bool, error) {
		h, err := m.conn.host(ctx, o.Host)
		if err != nil {
			return false, err
		}
		info, err := o.function(ctx, h)
		if err != nil {
			return false, err
		}
		s, ok := info.(*types.HostSriovInfo)
		return ok && s.SriovActive && s.NumVirtualFunction == s.NumVirtualFunctionRequested, nil
	}
}

func (m *maker) nodeSteps(ctx context.Context, i int) (steps []change.Step, start change.Step, err error) {
	v, n := m.lab.VSphere, &m.plan.Nodes[i]
	vm := m.conn.machine(m.lab, n.Name)
	want, err := m.want(n)
	if err != nil {
		return nil, start, err
	}
	_, have, err := vm.find(ctx)
	if err != nil {
		return nil, start, err
	}
	config := m.template
	if have != nil {
		config = have.Config
	}
	// Functions come first, with any restart of the host: nodes need them.
	var ready func(context.Context, *change.System) (bool, error)
	if m.restart {
		ready = func(context.Context, *change.System) (bool, error) { return false, nil }
	}
	for _, card := range n.Cards {
		if card.Kind == plan.KindVF {
			force := m.inForce(&hostOp{Host: v.Host, Of: card.ID, conn: m.conn})
			before := ready
			ready = func(ctx context.Context, s *change.System) (bool, error) {
				if before != nil {
					if ok, err := before(ctx, s); err != nil || !ok {
						return ok, err
					}
				}
				return force(ctx, s)
			}
		}
	}
	clone := &cloneOp{machine: vm, Lab: m.lab.Name, Template: v.Template, Host: v.Host, Clone: v.Clone,
		Datastore: v.Datastore, Pool: v.ResourcePool}
	settings := &settingsOp{machine: vm, Want: want}
	steps = []change.Step{
		{Op: clone, What: fmt.Sprintf("clone %s as %s on %s (%s)", v.Template, vm.Name, v.Host, v.Clone)},
		{Op: settings, What: "configure " + vm.Name, Why: diff(config, want)},
	}
	now, err := clone.Read(ctx, nil)
	if err != nil {
		return nil, start, err
	}
	if from := clone.from(now); from != "" {
		steps[0].What = fmt.Sprintf("move %s from %s to %s", vm.Name, from, v.Host)
		steps[0].Risk = fmt.Sprintf("it is stopped, and what the lab has changed of %s is undone; %s has to "+
			"reach its disks", from, v.Host)
	}
	if m.late {
		steps[1].Ready = m.named(settings)
	}
	if v.Customize != nil {
		steps = append(steps, m.customize(i, n, vm))
	}
	return steps, change.Step{Op: &powerOp{vm}, What: "start " + vm.Name, Ready: ready}, nil
}

func diff(have *vmConfig, want map[string]string) string {
	var lines []string
	for _, name := range order(slices.Collect(maps.Keys(want))) {
		s, err := settingNamed(name)
		if err != nil {
			continue // want reports the error
		}
		was := s.get(have)
		if was == want[name] {
			continue
		}
		was = cmp.Or(was, "unset")
		lines = append(lines, fmt.Sprintf("%s: %s -> %s", name, was, want[name]))
	}
	return strings.Join(lines, "\n")
}

// PowerState returns "" if a node has no machine.
func (c *Conn) PowerState(ctx context.Context, l *lab.Lab, node string) (types.VirtualMachinePowerState, error) {
	c.asking.Lock()
	defer c.asking.Unlock()
	s, err := (&powerOp{c.machine(l, node)}).Read(ctx, nil)
	return types.VirtualMachinePowerState(s), err
}
