package device

import (
	"context"
	"errors"
	"fmt"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/topology"
)

// A Driver is a PCI function that is to be with vfio-pci, so that a guest can have it.
type Driver struct {
	Address topology.PCIAddr `json:"address"`
	// Card is what was at the address when the plan was made.
	Card identity `json:"card,omitzero"`

	k *kernel
}

// driverState is how the kernel has a function.
type driverState struct {
	Gone     bool    `json:"gone,omitempty"` // no function is at the address
	Driver   string  `json:"driver"`         // "": none
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
	if !f.there() {
		return driverState{Gone: true}, nil
	}
	var err1, err2, err3 error
	st.Driver, err1 = f.driver()
	st.Override, err2 = f.override()
	st.D3Cold, err3 = f.optional(d3cold)
	return st, errors.Join(err1, err2, err3)
}

// d3cold is the file that says whether the slot's power may be switched off while nobody uses the
// function. Cards have been seen not to come back from that when a guest starts ("Unable to change
// power state from D3cold to D0").
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

// Shell implements change.Scripted.
func (d *Driver) Shell() []string {
	return []string{"vfio " + d.Address.String() + " " + d.Card.shell()}
}

// Restore implements change.Op. It is an error where the function is gone or another card is at its
// address: nothing of it remains to be restored then.
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
	// After the driver, which may have set it when it took the function.
	return f.setOptional(d3cold, *st.D3Cold)
}
