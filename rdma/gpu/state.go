package gpu

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

type saved struct {
	Model    string
	Memory   uint64
	Class    uint16
	Config   []byte // that drivers of PCI change
	Virtio   virtio
	Contexts []uint32
	// Personality is left out for Virtio.
	Personality Personality `json:",omitempty"`
}

// configSize is the part with writable bits.
const configSize = 256

// Save needs a stopped guest, and refuses if VRAM is in use, which it does not save.
func (g *GPU) Save() ([]byte, error) {
	g.serving.Lock()
	defer g.serving.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.memory.blobs); n > 0 {
		return nil, fmt.Errorf("gpu: %s: programs of the guest use %d allocations of its memory; end them first",
			g.cfg.Name, n)
	}
	// A plain GPU does not know who uses its memory. A reset, such as that by vfio-pci when a program ends, clears it.
	if n := g.resident(); g.plain() && n > 0 {
		return nil, fmt.Errorf("gpu: %s: programs of the guest have written to its memory, of which %d bytes are in "+
			"use; end them first", g.cfg.Name, n)
	}
	return json.Marshal(saved{Model: g.model.Name, Memory: g.cfg.Memory, Class: g.cfg.Class,
		Config: g.config[:configSize], Virtio: g.virtio, Contexts: slices.Sorted(maps.Keys(g.memory.contexts)),
		Personality: g.stated()})
}

// stated returns the personality as it is in a state.
func (g *GPU) stated() Personality {
	if g.plain() {
		return g.cfg.Personality
	}
	return ""
}

// Restore sets a state of the same model and size. The name, and with it the serial number, may be another. It must be
// called before QEMU connects, or while the guest is stopped; the reset that QEMU sends when it connects does not undo
// it. After an error the GPU is as before.
func (g *GPU) Restore(state []byte) error {
	var in saved
	if err := json.Unmarshal(state, &in); err != nil {
		return fmt.Errorf("gpu: the saved state of a GPU: %w", err)
	}
	if in.Model != g.model.Name || in.Memory != g.cfg.Memory || in.Class != g.cfg.Class {
		return fmt.Errorf("gpu: the saved state is of a %q with %d bytes and class %#x, and this is a %q with %d "+
			"and %#x",
			in.Model, in.Memory, in.Class, g.model.Name, g.cfg.Memory, g.cfg.Class)
	}
	if in.Personality != g.stated() {
		return fmt.Errorf("gpu: the saved state is of the personality %q, and this one is %q",
			cmp.Or(in.Personality, Virtio), g.cfg.Personality)
	}
	if len(in.Config) != configSize || !in.Virtio.sound() || len(in.Contexts) > maxContexts {
		return errors.New("gpu: the saved state of a GPU is damaged")
	}
	g.serving.Lock()
	defer g.serving.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hardReset()
	for i, v := range in.Config {
		m := g.writableBits(uint64(i))
		g.config[i] = g.config[i]&^m | v&m
	}
	g.publish()
	g.virtio = in.Virtio
	for _, id := range in.Contexts {
		g.memory.contexts[id] = true
	}
	g.restored = true
	return nil
}

// sound reports whether a driver could have set these values.
func (v *virtio) sound() bool {
	if v.ConfigVector != vectorOf(uint64(v.ConfigVector)) ||
		v.Status&statusFeaturesOK != 0 && (v.Features&^features != 0 || v.Features&featureVersion1 == 0) {
		return false
	}
	for i := range v.Queues {
		q := &v.Queues[i]
		if !sizeAllowed(q.Size) || q.Enabled && !q.aligned() || q.Vector != vectorOf(uint64(q.Vector)) {
			return false
		}
	}
	return true
}
