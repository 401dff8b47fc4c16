package checks

import (
	"context"

	"github.com/rackless/rackless/machine/topology"
)

// A GPU is an emulated GPU of a node, as the lab asks for it and as its emulator sees it. Its JSON is the output of
// rackless gpu ls, see docs/json.md.
type GPU struct {
	Node   string `json:"node"`
	Number int    `json:"gpu"` // in the order of the lab file, from 0
	Model  string `json:"model"`
	Memory uint64 `json:"memory_bytes"` // of VRAM
	// Beside is the network device in the node to which Path leads.
	Beside    string             `json:"beside"`
	Path      topology.PathClass `json:"path"`
	Connected bool               `json:"connected"` // connected to the node's machine
	Driver    bool               `json:"driver"`    // set up by a driver
	Broken    bool               `json:"broken,omitempty"`
	Address   uint64             `json:"address,omitempty"` // of the VRAM in the node's guest; 0 if it is not enabled
	Allocated uint64             `json:"allocated_bytes"`
	Fault     GPUFault           `json:"fault,omitempty"`
}

// GPUFault is a kind of failure of an emulated GPU.
type GPUFault string

// Faults of GPUs.
const (
	GPULost          GPUFault = "lost"
	GPUExportRefused GPUFault = "export-refused"
	GPUPeerBlocked   GPUFault = "peer-blocked"
)

// GPUFaults lists all faults of GPUs with their descriptions.
var GPUFaults = []struct {
	Kind GPUFault
	Help string
}{
	{GPULost, "all reads give ones, as from a GPU that has lost its PCIe link"},
	{GPUExportRefused, "the GPU refuses new memory that can be exported as a dma-buf"},
	{GPUPeerBlocked, "NICs do not reach the memory, although it can be registered"},
}

// A GPUReader is a Reader of a lab with emulated GPUs.
type GPUReader interface {
	// GPUs returns the GPUs of the lab in the order of its nodes, or nil if none is emulated.
	GPUs(ctx context.Context) ([]GPU, error)
}
