package checks

import (
	"context"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
)

// A GPU is emulated, as the lab and its emulator see it. Its JSON is the output of rackless gpu ls, see docs/json.md.
type GPU struct {
	Node   string `json:"node"`
	Number int    `json:"gpu"` // in the lab file's order, from 0
	Model  string `json:"model"`
	Memory uint64 `json:"memory_bytes"` // of VRAM
	// Personality is virtio or vfio, and decides which driver of the node takes the GPU.
	Personality lab.GPUPersonality `json:"personality"`
	// Beside is the network device to which Path leads.
	Beside    string             `json:"beside"`
	Path      topology.PathClass `json:"path"`
	Connected bool               `json:"connected"` // connected to the node's machine
	Driver    bool               `json:"driver"`    // set up by a driver
	Broken    bool               `json:"broken,omitempty"`
	Address   uint64             `json:"address,omitempty"` // of the VRAM in the guest; 0 if not enabled
	Allocated uint64             `json:"allocated_bytes"`
	Fault     GPUFault           `json:"fault,omitempty"`
}

// GPUFault is a kind of failure.
type GPUFault string

// Faults of GPUs.
const (
	GPULost          GPUFault = "lost"
	GPUExportRefused GPUFault = "export-refused"
	GPUPeerBlocked   GPUFault = "peer-blocked"
)

// Of reports whether GPUs of a personality can have the fault. vfio-pci exports memory without asking the GPU.
func (f GPUFault) Of(p lab.GPUPersonality) bool {
	return f != GPUExportRefused || p != lab.PersonalityVFIO
}

// GPUFaults lists all with descriptions.
var GPUFaults = []struct {
	Kind GPUFault
	Help string
}{
	{GPULost, "all reads give ones, as from a GPU that has lost its PCIe link"},
	{GPUExportRefused, "the GPU refuses new memory that can be exported as a dma-buf"},
	{GPUPeerBlocked, "NICs do not reach the memory, although it can be registered"},
}

// A GPUReader reads a lab with emulated GPUs.
type GPUReader interface {
	// GPUs are in the order of nodes, nil if none is emulated.
	GPUs(ctx context.Context) ([]GPU, error)
}
