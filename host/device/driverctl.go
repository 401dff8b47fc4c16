package device

import (
	"context"
	"slices"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/topology"
)

// Driverctl is what the program driverctl, where it is installed, remembers of a function: at each
// boot it gives the function to that driver, which has to be the one that we give it to. Where
// driverctl is not installed there is nothing to do.
type Driverctl struct {
	Address topology.PCIAddr `json:"address"`
}

// Kind implements change.Op.
func (d *Driverctl) Kind() string { return kindDriverctl }

// Subject implements change.Op.
func (d *Driverctl) Subject() string { return d.Address.String() }

// file is where driverctl (0.95 and later) keeps it. Its udev rule asks for the very same name.
func (d *Driverctl) file() *change.File {
	return &change.File{Path: "/etc/driverctl.d/pci-" + d.Address.String(), Data: []byte(vfioPCI + "\n"), Mode: 0o644}
}

// driverctlPrograms are where distributions have it.
var driverctlPrograms = []string{"/usr/sbin/driverctl", "/sbin/driverctl", "/usr/bin/driverctl"}

// driverctlState is whether there is a driverctl, and its file.
type driverctlState struct {
	Installed bool         `json:"installed"`
	File      change.State `json:"file,omitempty"` // where it is installed
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

// Do implements change.Op. The file is written and driverctl not run: it would rebind the function,
// which [Driver] has done with more care.
func (d *Driverctl) Do(ctx context.Context, s *change.System) error { return d.file().Do(ctx, s) }

// Restore implements change.Op.
func (d *Driverctl) Restore(ctx context.Context, s *change.System, before change.State) error {
	st, err := change.Decode[driverctlState](before)
	if err != nil || !st.Installed {
		return err
	}
	return d.file().Restore(ctx, s, st.File)
}
