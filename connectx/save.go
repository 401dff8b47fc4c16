package connectx

import "errors"

// Save returns the state of the adapter, without guest memory. The guest must be stopped.
func (p *Port) Save() ([]byte, error) { return nil, errors.New("connectx: not yet") }

// Restore sets the state that Save returned. The adapter may have another MAC and name than the saved one: see
// NIC.MAC. Call it before QEMU connects, or while the guest is stopped; the reset that QEMU sends when it connects
// does not undo it.
func (p *Port) Restore(state []byte) error { return errors.New("connectx: not yet") }
