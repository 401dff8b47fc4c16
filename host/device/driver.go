package device

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
)

// A Driver binds a PCI function to vfio-pci.
type Driver struct {
	Address topology.PCIAddr `json:"address"`
	// Card was at the address when the plan was made.
	Card identity `json:"card,omitzero"`

	k *kernel
}

type driverState struct {
	Gone     bool    `json:"gone,omitempty"`
	Driver   string  `json:"driver"` // "": none
	Override string  `json:"override,omitempty"`
	D3Cold   *string `json:"d3cold_allowed,omitempty"` // "0" or "1"
}

// Kind implements change.Op.
func (d *Driver) Kind() string { return kindDriver }

// Subject implements change.Op.
func (d *Driver) Subject() string { return d.Address.String() }

func (d *Driver) function(s *change.System) function { return function{s, d.k.orReal(), d.Address} }

// Read implements change.Op.
func (d *Driver) Read(_ context.Context, s *change.System) (change.State, error) {
	return change.Encode(d.read(s))
}

func (d *Driver) read(s *change.System) (st driverState, err error) {
	f := d.function(s)
	if !f.exists() {
		return driverState{Gone: true}, nil
	}
	var err1, err2, err3 error
	st.Driver, err1 = f.driver()
	st.Override, err2 = f.override()
	st.D3Cold, err3 = f.optional(d3cold)
	return st, errors.Join(err1, err2, err3)
}

// d3cold is the file that allows the kernel to switch off the slot's power while the function is idle. Some cards do
// not come back from that when a guest starts ("Unable to change power state from D3cold to D0").
const d3cold = "d3cold_allowed"

// Done implements change.Op.
func (d *Driver) Done(state change.State) bool {
	st, err := change.Decode[driverState](state)
	return err == nil && st.Driver == vfioPCI && (st.D3Cold == nil || *st.D3Cold == "0")
}

// Do implements change.Op.
func (d *Driver) Do(ctx context.Context, s *change.System) error {
	f := d.function(s)
	if err := f.check(d.Card); err != nil {
		return err
	}
	if err := f.giveToVFIO(ctx); err != nil {
		return err
	}
	return f.setOptional(d3cold, "0")
}

// Shell assumes that no guest or program uses the function.
func (d *Driver) Shell() []string {
	dir := pciDevices + "/" + d.Address.String()
	return []string{
		change.EchoTo(dir+"/driver_override", vfioPCI),
		fmt.Sprintf("[ ! -e %s/driver ] || %s", dir, change.EchoTo(dir+"/driver/unbind", d.Address.String())),
		change.EchoTo(driversProbe, d.Address.String()),
		fmt.Sprintf("[ ! -e %s/%s ] || %s", dir, d3cold, change.EchoTo(dir+"/"+d3cold, "0")),
		fmt.Sprintf("lspci -nnk -s %s   # Kernel driver in use: %s", d.Address, vfioPCI),
	}
}

// Merge takes a function bound to vfio-pci, or reserved for it and unbound, as unchanged.
func (d *Driver) Merge(_ context.Context, s *change.System, u change.Undo) (change.State, []change.Changed, error) {
	want, err1 := change.Decode[driverState](u.Before)
	now, err2 := change.Decode[driverState](u.Now)
	if err := errors.Join(err1, err2); err != nil {
		return "", nil, err
	}
	if want.Gone || d.function(s).check(d.Card) != nil {
		return u.Before, nil, nil // Restore reports the error
	}
	var changed []change.Changed
	if !isVFIO(now.Driver, now.Override, u.Cut) && now.Driver != want.Driver {
		changed = append(changed, change.Changed{What: "driver of " + d.Address.String(), Found: orNone(now.Driver),
			Set: vfioPCI})
		want.Driver, want.Override = now.Driver, now.Override
	}
	if want.D3Cold != nil && now.D3Cold != nil && *now.D3Cold != "0" && *now.D3Cold != *want.D3Cold {
		changed = append(changed, change.Changed{What: d.function(s).path(d3cold), Found: *now.D3Cold, Set: "0"})
		want.D3Cold = now.D3Cold
	}
	state, err := change.Encode(want, nil)
	return state, changed, err
}

// isVFIO also accepts no driver at all during a change or after a boot.
func isVFIO(driver, override string, cut bool) bool {
	return driver == vfioPCI || driver == "" && (override == vfioPCI || cut)
}

// Restore returns an error if the function is gone or another card is at its address.
func (d *Driver) Restore(ctx context.Context, s *change.System, before change.State) error {
	st, err := change.Decode[driverState](before)
	if err != nil || st.Gone {
		return err
	}
	f := d.function(s)
	if err := f.check(d.Card); err != nil {
		return fmt.Errorf("it cannot go back to %s: %w", orNone(st.Driver), err)
	}
	if err := f.backTo(ctx, st.Driver, st.Override); err != nil {
		return err
	}
	if st.D3Cold == nil {
		return nil
	}
	// After the driver, which may have set it.
	return f.setOptional(d3cold, *st.D3Cold)
}

// Driverctl records vfio-pci for the program driverctl, if installed, which binds the function at each boot.
type Driverctl struct {
	Address topology.PCIAddr `json:"address"`
}

// Kind implements change.Op.
func (d *Driverctl) Kind() string { return kindDriverctl }

// Subject implements change.Op.
func (d *Driverctl) Subject() string { return d.Address.String() }

// file is the override file of driverctl 0.95 and later, whose udev rule looks for the same name.
func (d *Driverctl) file() *change.File {
	return &change.File{Path: "/etc/driverctl.d/pci-" + d.Address.String(), Data: []byte(vfioPCI + "\n"), Mode: 0o644}
}

var driverctlPrograms = []string{"/usr/sbin/driverctl", "/sbin/driverctl", "/usr/bin/driverctl"}

type driverctlState struct {
	Installed bool         `json:"installed"`
	File      change.State `json:"file,omitempty"` // empty if not installed
}

// Read implements change.Op.
func (d *Driverctl) Read(ctx context.Context, s *change.System) (change.State, error) {
	st := driverctlState{Installed: slices.ContainsFunc(driverctlPrograms, s.Exists)}
	if st.Installed {
		var err error
		if st.File, err = d.file().Read(ctx, s); err != nil {
			return "", err
		}
	}
	return change.Encode(st, nil)
}

// Done implements change.Op.
func (d *Driverctl) Done(state change.State) bool {
	st, err := change.Decode[driverctlState](state)
	return err == nil && (!st.Installed || d.file().Done(st.File))
}

// Do does not run driverctl, which would rebind the function with less care than [Driver] does.
func (d *Driverctl) Do(ctx context.Context, s *change.System) error { return d.file().Do(ctx, s) }

// Shell implements change.Manual.
func (d *Driverctl) Shell() []string {
	return slices.Concat([]string{"if command -v driverctl >/dev/null; then"}, d.file().Shell(), []string{"fi"})
}

// Restore implements change.Op.
func (d *Driverctl) Restore(ctx context.Context, s *change.System, before change.State) error {
	st, err := change.Decode[driverctlState](before)
	if err != nil || !st.Installed {
		return err
	}
	return d.file().Restore(ctx, s, st.File)
}

// Merge implements change.Merger.
func (d *Driverctl) Merge(ctx context.Context, s *change.System, u change.Undo) (change.State, []change.Changed,
	error) {
	want, err1 := change.Decode[driverctlState](u.Before)
	now, err2 := change.Decode[driverctlState](u.Now)
	if err := errors.Join(err1, err2); err != nil || !want.Installed || !now.Installed {
		return u.Before, nil, err
	}
	file, err := u.Part(func(state change.State) (change.State, error) {
		st, err := change.Decode[driverctlState](state)
		return st.File, err
	})
	if err != nil {
		return "", nil, err
	}
	var changed []change.Changed
	if want.File, changed, err = d.file().Merge(ctx, s, file); err != nil {
		return "", nil, err
	}
	state, err := change.Encode(want, nil)
	return state, changed, err
}

// Restored ignores whether driverctl is installed, which is not undone.
func (d *Driverctl) Restored(before, now change.State) bool {
	b, err1 := change.Decode[driverctlState](before)
	n, err2 := change.Decode[driverctlState](now)
	return err1 == nil && err2 == nil && (!b.Installed || !n.Installed || d.file().Restored(b.File, n.File))
}
