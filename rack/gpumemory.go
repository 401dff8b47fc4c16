package rack

import "context"

// A VRAM is the memory of a node's emulated GPU.
type VRAM struct {
	Node    string
	GPU     int    // number in the node
	Address uint64 // in the guest, or 0 if the guest has not enabled it
	Memory  uint64 // bytes
	Moved   []Moved
}

// Moved counts the bytes that a NIC has written to and read from the memory by RDMA, since its adapter was made;
// atomics are not counted.
type Moved struct {
	NIC     string `json:"nic"` // as in the lab file
	Written uint64 `json:"written"`
	Read    uint64 `json:"read"`
}

// Of returns a NIC's bytes.
func (v VRAM) Of(nic string) Moved {
	for _, m := range v.Moved {
		if m.NIC == nic {
			return m
		}
	}
	return Moved{NIC: nic}
}

// A GPULab emulates GPUs.
type GPULab interface {
	// VRAM returns the GPUs of all nodes.
	VRAM(ctx context.Context) ([]VRAM, error)
}

// VRAM returns the emulated GPUs of all nodes, if any.
func (r *Rack) VRAM(ctx context.Context) ([]VRAM, error) {
	if g, ok := r.runtime.(GPULab); ok {
		return g.VRAM(ctx)
	}
	return nil, nil
}

// HasVRAM reports whether the emulation counts bytes.
func (r *Rack) HasVRAM() bool {
	_, ok := r.runtime.(GPULab)
	return ok
}
