package rack

import "context"

// A VRAM is the memory of an emulated GPU of a node, as the emulation sees it.
type VRAM struct {
	Node    string
	GPU     int    // number among the node's GPUs in the lab file
	Address uint64 // of the memory in the guest, or 0 if the guest has not enabled it
	Memory  uint64 // bytes
	Moved   []Moved
}

// Moved is the number of bytes that a NIC of the node has written to and read from the memory by RDMA, since its
// adapter was made. Atomics are not counted.
type Moved struct {
	NIC     string `json:"nic"` // network device in the node, as in the lab file
	Written uint64 `json:"written"`
	Read    uint64 `json:"read"`
}

// Of returns the bytes that a NIC has moved.
func (v VRAM) Of(nic string) Moved {
	for _, m := range v.Moved {
		if m.NIC == nic {
			return m
		}
	}
	return Moved{NIC: nic}
}

// A GPULab is a runtime that emulates the GPUs of its nodes.
type GPULab interface {
	// VRAM returns the GPUs of all nodes.
	VRAM(ctx context.Context) ([]VRAM, error)
}

// VRAM returns the emulated GPUs of all nodes, or none if the driver of the lab emulates none.
func (r *Rack) VRAM(ctx context.Context) ([]VRAM, error) {
	if g, ok := r.runtime.(GPULab); ok {
		return g.VRAM(ctx)
	}
	return nil, nil
}

// HasVRAM reports whether the emulation can say which bytes went to memory of GPUs.
func (r *Rack) HasVRAM() bool {
	_, ok := r.runtime.(GPULab)
	return ok
}
