package gpu

import (
	"maps"
	"slices"
)

// Model has the properties that an emulated GPU has.
type Model struct {
	Name   string // as a user reads it
	Memory uint64 // default of the emulated VRAM in bytes; the card has more
	Gen    int    // PCIe generation of the link
	Width  int    // PCIe lanes

	Subsystem uint16 // PCI subsystem id, by which software knows the model
}

// Generic is the default model.
const Generic = "generic"

// Links are those of the cards' data sheets.
var models = map[string]Model{
	Generic: {"rackless emulated GPU", 256 << 20, 3, 16, 0x4c00},
	"h20":   {"rackless emulated H20", 1 << 30, 5, 16, 0x4c01},
	"h100":  {"rackless emulated H100", 1 << 30, 5, 16, 0x4c02},
	"a100":  {"rackless emulated A100", 1 << 30, 4, 16, 0x4c03},
	"l40s":  {"rackless emulated L40S", 1 << 30, 4, 16, 0x4c04},
}

// Models returns sorted names.
func Models() []string { return slices.Sorted(maps.Keys(models)) }

// ModelOf returns Generic for the empty name.
func ModelOf(name string) (m Model, ok bool) {
	if name == "" {
		name = Generic
	}
	m, ok = models[name]
	return m, ok
}
