package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
)

// SRIOV sets the number, the addresses and the drivers of virtual functions. It is a single op because the number
// changes only by way of 0, which discards everything else.
type SRIOV struct {
	PF    topology.PCIAddr `json:"pf"`
	Card  identity         `json:"card,omitzero"`
	Count int              `json:"count"`
	// Autoprobe is for the host's drivers. It is off while functions are created, so that no driver sees an all-zero
	// address; RDMA derives its node GUID from the address.
	Autoprobe bool    `json:"autoprobe"`
	VFs       []LabVF `json:"vfs"`

	k *kernel
}

// A LabVF is a virtual function that goes to a lab node, and therefore to vfio-pci.
type LabVF struct {
	Index    int        `json:"index"`
	Settings VFSettings `json:"settings"`
}

type sriovState struct {
	Gone      bool      `json:"gone,omitempty"`
	Count     int       `json:"numvfs"`
	Autoprobe *string   `json:"autoprobe,omitempty"` // "0" or "1"
	VFs       []vfState `json:"vfs,omitempty"`       // by index
}

type vfState struct {
	Address  topology.PCIAddr `json:"address"`
	Driver   string           `json:"driver"` // "": none
	Override string           `json:"override,omitempty"`
	Settings VFSettings       `json:"settings,omitzero"`
}

// Source: Documentation/ABI/testing/sysfs-bus-pci of Linux.
const (
	fileCount     = "sriov_numvfs"
	fileTotal     = "sriov_totalvfs"
	fileAutoprobe = "sriov_drivers_autoprobe"
)

// Kind implements change.Op.
func (o *SRIOV) Kind() string { return kindSRIOV }

// Subject implements change.Op.
func (o *SRIOV) Subject() string { return o.PF.String() }

func (o *SRIOV) function(s *change.System) function { return function{s, o.k.orReal(), o.PF} }

// Read implements change.Op.
func (o *SRIOV) Read(ctx context.Context, s *change.System) (change.State, error) {
	return change.Encode(o.function(s).sriov(ctx))
}

func parseSRIOVState(state change.State) (*sriovState, error) {
	st, err := change.Decode[sriovState](state)
	if err != nil {
		return nil, err
	}
	if st.Count != len(st.VFs) {
		return nil, fmt.Errorf("state of virtual functions: %d of them, and %d described", st.Count, len(st.VFs))
	}
	return &st, nil
}

// sriov leaves out missing settings, which are not restored: drivers may list those of only some functions.
func (f function) sriov(ctx context.Context) (*sriovState, error) {
	st := &sriovState{}
	if !f.exists() {
		st.Gone = true
		return st, nil
	}
	var err1 error
	st.Autoprobe, err1 = f.optional(fileAutoprobe)
	addresses, err2 := f.virtual()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	st.Count = len(addresses)
	if st.Count == 0 {
		return st, nil
	}
	settings, err := f.settings(ctx)
	for i, a := range addresses {
		vf := function{f.s, f.k, a}
		driver, err1 := vf.driver()
		override, err2 := vf.override()
		if err := errors.Join(err, err1, err2); err != nil {
			return nil, err
		}
		one := vfState{Address: a, Driver: driver, Override: override}
		if i < len(settings) {
			one.Settings = settings[i]
		}
		st.VFs = append(st.VFs, one)
	}
	return st, nil
}

// settings leaves out settings that the port cannot change.
func (f function) settings(ctx context.Context) ([]VFSettings, error) {
	netdev, err := f.port()
	if err != nil || netdev == "" {
		return nil, err
	}
	network, err := f.k.network(f.s)
	if err != nil {
		return nil, err
	}
	all, err1 := network.VFs(ctx, netdev)
	infiniband, err2 := isInfiniBand(f.s, netdev)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	// In switchdev mode the switch ports hold the other settings, and the kernel refuses them here (EOPNOTSUPP).
	id, err := f.s.Value(netFile(netdev, "phys_switch_id"))
	switched := err == nil && id != ""
	for i := range all {
		if infiniband {
			all[i].MAC = ""
		}
		if switched {
			all[i] = VFSettings{MAC: all[i].MAC, NodeGUID: all[i].NodeGUID, PortGUID: all[i].PortGUID,
				LinkState: all[i].LinkState}
		}
	}
	return all, nil
}

// network refuses the machine's own network if the files are not the machine's own.
func (k *kernel) network(s *change.System) (Network, error) {
	if _, real := k.net.(netlinkNetwork); real && s.Root != "/" {
		return nil, fmt.Errorf("files are below %s, and the network is that of this machine: they are not of "+
			"one machine", s.Root)
	}
	return k.net, nil
}

// Done ignores functions that no lab node gets, because the host may use them freely.
func (o *SRIOV) Done(state change.State) bool {
	st, err := parseSRIOVState(state)
	if err != nil || st.Gone || st.Count != o.Count || st.Autoprobe != nil && *st.Autoprobe != flagText(o.Autoprobe) {
		return false
	}
	for _, want := range o.VFs {
		if want.Index >= len(st.VFs) {
			return false
		}
		have := st.VFs[want.Index]
		if have.Driver != vfioPCI || len(differences(have.Settings, want.Settings)) > 0 {
			return false
		}
	}
	return true
}

func flagText(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// Do implements change.Op.
func (o *SRIOV) Do(ctx context.Context, s *change.System) error {
	f := o.function(s)
	if err := f.check(o.Card); err != nil {
		return err
	}
	st, err := f.sriov(ctx)
	if err != nil {
		return err
	}
	fresh := o.unfinished(st)
	if st.Count != o.Count {
		if st, err = f.remake(ctx, st, o.Count); err != nil {
			return err
		}
	}
	ours := map[int]bool{}
	for _, vf := range o.VFs {
		if vf.Index < 0 || vf.Index >= len(st.VFs) {
			return fmt.Errorf("%s has no virtual function %d", o.PF, vf.Index)
		}
		ours[vf.Index] = true
		if err := f.applyVF(ctx, vf, st.VFs[vf.Index]); err != nil {
			return fmt.Errorf("virtual function %d (%s): %w", vf.Index, st.VFs[vf.Index].Address, err)
		}
	}
	// With autoprobe off, the kernel binds no driver to a function without an override, and before Linux 5.3 not even
	// to one with an override.
	if err := f.setOptional(fileAutoprobe, flagText(o.Autoprobe)); err != nil {
		return err
	}
	if fresh && o.Autoprobe {
		for i, vf := range st.VFs {
			if !ours[i] && vf.Driver == "" && vf.Override == "" {
				// An error only means that no driver wants it.
				_ = f.k.write(s, "/sys/bus/pci/drivers_probe", vf.Address.String())
			}
		}
	}
	for _, vf := range o.VFs {
		if err := (function{f.s, f.k, st.VFs[vf.Index].Address}).giveToVFIO(ctx); err != nil {
			return fmt.Errorf("virtual function %d: %w", vf.Index, err)
		}
	}
	return nil
}

// Shell sets addresses before any driver is bound; the kernel changes the number only by way of 0.
func (o *SRIOV) Shell() []string {
	dir := pciDevices + "/" + o.PF.String() + "/"
	lines := []string{fmt.Sprintf("cat %s%s   # are there %d already? then leave out the lines with %s", dir, fileCount,
		o.Count, fileCount), change.EchoTo(dir+fileAutoprobe, "0"), change.EchoTo(dir+fileCount, "0")}
	if o.Count == 0 {
		return append(lines, change.EchoTo(dir+fileAutoprobe, flagText(o.Autoprobe)))
	}
	lines = append(lines, change.EchoTo(dir+fileCount, strconv.Itoa(o.Count)), netdevOf(o.PF))
	for _, vf := range o.VFs {
		lines = append(lines, vf.shell()...)
	}
	lines = append(lines, change.EchoTo(dir+fileAutoprobe, flagText(o.Autoprobe)))
	ours := map[int]bool{}
	for _, vf := range o.VFs {
		ours[vf.Index] = true
		lines = append(lines, fmt.Sprintf("vf=$(basename $(readlink %svirtfn%d))", dir, vf.Index),
			fmt.Sprintf("echo %s > %s/$vf/driver_override", vfioPCI, pciDevices),
			fmt.Sprintf("[ ! -e %s/$vf/driver ] || echo $vf > %[1]s/$vf/driver/unbind", pciDevices),
			"echo $vf > "+driversProbe)
	}
	for i := range o.Count {
		if o.Autoprobe && !ours[i] {
			lines = append(lines, fmt.Sprintf("echo $(basename $(readlink %svirtfn%d)) > %s", dir, i, driversProbe))
		}
	}
	return lines
}

func (vf *LabVF) shell() []string {
	ip := fmt.Sprintf("ip link set dev $dev vf %d ", vf.Index)
	guid := guidBytes(vf.Settings.NodeGUID).String()
	onOff := func(on *bool) string {
		if on != nil && *on {
			return "on"
		}
		return "off"
	}
	return []string{
		ip + "mac " + vf.Settings.MAC + "   # of InfiniBand instead: node_guid " + guid + ", then port_guid " + guid,
		ip + "vlan 0", ip + "max_tx_rate 0 min_tx_rate 0", ip + "state auto",
		ip + "spoofchk " + onOff(vf.Settings.SpoofChk), ip + "trust " + onOff(vf.Settings.Trust),
	}
}

// unfinished recognizes a run that was cut off: autoprobe is still off, or a function is reserved for vfio-pci but not
// bound to it. Otherwise a host function without a driver is intentional.
func (o *SRIOV) unfinished(st *sriovState) bool {
	if st.Count != o.Count || st.Autoprobe != nil && *st.Autoprobe != flagText(o.Autoprobe) {
		return true
	}
	return slices.ContainsFunc(o.VFs, func(vf LabVF) bool {
		return vf.Index < len(st.VFs) && st.VFs[vf.Index].Override == vfioPCI && st.VFs[vf.Index].Driver != vfioPCI
	})
}

// remake goes by way of 0, as the kernel requires. The new functions have no drivers.
func (f function) remake(ctx context.Context, st *sriovState, count int) (*sriovState, error) {
	for i, vf := range st.VFs {
		if err := (function{f.s, f.k, vf.Address}).idle(ctx); err != nil {
			return nil, fmt.Errorf("%s has %d virtual functions and is to have %d, which goes by way of 0; number %d "+
				"cannot go: %w", f.a, st.Count, count, i, err)
		}
	}
	if err := f.setOptional(fileAutoprobe, "0"); err != nil {
		return nil, err
	}
	if st.Count != 0 {
		if err := f.k.write(f.s, f.path(fileCount), "0"); err != nil {
			return nil, fmt.Errorf("%s does not give up its %d virtual functions: %w; see the end of dmesg", f.a,
				st.Count, err)
		}
	}
	if count == 0 {
		return f.sriov(ctx)
	}
	if err := f.k.write(f.s, f.path(fileCount), strconv.Itoa(count)); err != nil {
		return nil, fmt.Errorf("%s does not make %d virtual functions: %w. See the end of dmesg: \"not enough MMIO "+
			"resources\" asks for SR-IOV and 64-bit addresses "+
			"(above 4G) in the machine's firmware, or for the kernel argument pci=realloc", f.a, count, err)
	}
	made, err := f.k.wait(ctx, func() (bool, error) {
		_, err := f.vf(count - 1)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, err
	}
	if !made {
		return nil, fmt.Errorf("%s was asked for %d virtual functions, and number %d does not appear: see the end "+
			"of dmesg", f.a, count, count-1)
	}
	return f.sriov(ctx)
}

func (f function) applyVF(ctx context.Context, want LabVF, have vfState) error {
	changes, err := f.changes(have.Settings, want.Settings)
	if err != nil || have.Driver == vfioPCI && len(changes) == 0 {
		return err
	}
	vf := function{f.s, f.k, have.Address}
	if err := vf.viable(alone); err != nil {
		return err
	}
	if have.Driver == vfioPCI {
		if err := vf.released(); err != nil {
			return err
		}
	} else {
		if err := vf.setOverride(vfioPCI); err != nil {
			return err
		}
		if err := vf.unbind(ctx); err != nil {
			return err
		}
	}
	return f.set(ctx, want.Index, changes, want.Settings)
}

// changes returns the differences, plus the GUIDs if an older kernel does not show them.
func (f function) changes(have, want VFSettings) ([]VFSetting, error) {
	changes := differences(have, want)
	if have.NodeGUID != nil || want.NodeGUID == nil {
		return changes, nil
	}
	netdev, err := f.port()
	if err != nil {
		return nil, err
	}
	infiniband, err := isInfiniBand(f.s, netdev)
	if infiniband {
		changes = append([]VFSetting{SettingNodeGUID, SettingPortGUID}, changes...)
	}
	return changes, err
}

func (f function) set(ctx context.Context, index int, changes []VFSetting, to VFSettings) error {
	if len(changes) == 0 {
		return nil
	}
	netdev, err := f.port()
	if err != nil {
		return err
	}
	if netdev == "" {
		return noPort(f.a)
	}
	network, err := f.k.network(f.s)
	if err != nil {
		return err
	}
	for _, setting := range changes {
		if f.s.Fault != nil {
			f.s.Fault(fmt.Sprintf("set %s of virtual function %d of %s", setting, index, netdev))
		}
		if err := network.SetVF(ctx, netdev, index, setting, to); err != nil {
			return err
		}
	}
	return nil
}

// Merge keeps all functions if their number would change: that discards any setting that somebody made on one.
func (o *SRIOV) Merge(_ context.Context, s *change.System, u change.Undo) (change.State, []change.Changed, error) {
	want, err1 := parseSRIOVState(u.Before)
	now, err2 := parseSRIOVState(u.Now)
	if err := errors.Join(err1, err2); err != nil {
		return "", nil, err
	}
	if want.Gone || u.Cut && now.Count == 0 || o.function(s).check(o.Card) != nil {
		return u.Before, nil, nil // Restore reports the error
	}
	var changed []change.Changed
	if set := flagText(o.Autoprobe); !u.Cut && want.Autoprobe != nil && now.Autoprobe != nil && *now.Autoprobe != set &&
		*now.Autoprobe != *want.Autoprobe {
		changed = append(changed, change.Changed{What: o.function(s).path(fileAutoprobe), Found: *now.Autoprobe,
			Set: set})
		want.Autoprobe = now.Autoprobe
	}
	if now.Count != o.Count && now.Count != want.Count {
		return u.Now, append(changed, change.Changed{What: o.function(s).path(fileCount),
			Found: strconv.Itoa(now.Count), Set: strconv.Itoa(o.Count)}), nil
	}
	if u.Cut {
		return u.Before, nil, nil
	}
	if now.Count == o.Count {
		others, err := o.mergeVFs(u.Made, want, now)
		if err != nil {
			return "", nil, err
		}
		changed = append(changed, others...)
		if len(others) > 0 && want.Count != now.Count {
			return u.Now, changed, nil
		}
	}
	state, err := change.Encode(want, nil)
	return state, changed, err
}

// mergeVFs copies changes by others to want if it has as many functions. It ignores the host's own functions, which
// their drivers change too.
func (o *SRIOV) mergeVFs(made change.State, want, now *sriovState) (changed []change.Changed, err error) {
	after := &sriovState{}
	if made != "" {
		if after, err = parseSRIOVState(made); err != nil {
			return nil, err
		}
	}
	for _, lab := range o.VFs {
		if lab.Index >= len(now.VFs) {
			continue
		}
		vf, set, before := now.VFs[lab.Index], lab.Settings, vfState{}
		if lab.Index < len(after.VFs) {
			set = after.VFs[lab.Index].Settings
		}
		if want.Count == now.Count {
			before = want.VFs[lab.Index]
		}
		name := fmt.Sprintf("virtual function %d of %s", lab.Index, o.PF)
		if !isVFIO(vf.Driver, vf.Override, false) && (want.Count != now.Count || vf.Driver != before.Driver) {
			changed = append(changed, change.Changed{What: "driver of " + name, Found: orNone(vf.Driver), Set: vfioPCI})
			before = vf
		}
		for _, setting := range differences(vf.Settings, set) {
			if setting == SettingMAC && vf.Settings.MAC == noMAC {
				continue // the port's driver was reloaded
			}
			if want.Count == now.Count && len(differences(vf.Settings.only(setting), before.Settings)) == 0 {
				continue
			}
			changed = append(changed, change.Changed{What: string(setting) + " of " + name,
				Found: vf.Settings.only(setting).text(), Set: set.only(setting).text()})
			before.Settings.take(setting, vf.Settings)
		}
		if want.Count == now.Count {
			want.VFs[lab.Index] = before
		}
	}
	return changed, nil
}

// Restore has the order of Do: first the number, which recreates all functions; then settings, while no driver is
// bound; then autoprobe, without which older kernels bind nothing; then drivers; and last settings that drivers
// changed.
func (o *SRIOV) Restore(ctx context.Context, s *change.System, before change.State) error {
	want, err := parseSRIOVState(before)
	if err != nil || want.Gone {
		return err
	}
	f := o.function(s)
	if err := f.check(o.Card); err != nil {
		return fmt.Errorf("it cannot get its %d virtual functions of before back: %w", want.Count, err)
	}
	have, err := f.sriov(ctx)
	if err != nil {
		return err
	}
	if have.Count != want.Count {
		if have, err = f.remake(ctx, have, want.Count); err != nil {
			return err
		}
	}
	for i, vf := range want.VFs {
		if err := f.restoreVF(ctx, i, have.VFs[i], vf); err != nil {
			return fmt.Errorf("virtual function %d (%s): %w", i, have.VFs[i].Address, err)
		}
	}
	if want.Autoprobe != nil {
		if err := f.setOptional(fileAutoprobe, *want.Autoprobe); err != nil {
			return err
		}
	}
	for i, vf := range want.VFs {
		if err := (function{f.s, f.k, have.VFs[i].Address}).backTo(ctx, vf.Driver, vf.Override); err != nil {
			return fmt.Errorf("virtual function %d: %w", i, err)
		}
	}
	// Drivers of virtual functions change some settings when they bind.
	all, err := f.settings(ctx)
	if err != nil {
		return err
	}
	for i := range min(len(all), len(want.VFs)) {
		if err := f.set(ctx, i, differences(all[i], want.VFs[i].Settings), want.VFs[i].Settings); err != nil {
			return err
		}
	}
	return nil
}

func (f function) restoreVF(ctx context.Context, index int, have, want vfState) error {
	changes := differences(have.Settings, want.Settings)
	if len(changes) == 0 {
		return nil
	}
	vf := function{f.s, f.k, have.Address}
	if have.Driver == vfioPCI {
		if err := vf.released(); err != nil {
			return err
		}
	} else if have.Driver != "" {
		// A driver reads the address only when it binds.
		if err := vf.setOverride(have.Driver); err != nil {
			return err
		}
		if err := vf.unbind(ctx); err != nil {
			return err
		}
	}
	return f.set(ctx, index, changes, want.Settings)
}
