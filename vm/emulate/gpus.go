package emulate

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rdma/gpu"
)

// GPUs with a model have memory behind a BAR, and are emulated beside the ConnectX adapters: a template has none of
// them. The others are display controllers of QEMU's.

const (
	// modelDisplay is a display controller of QEMU's, without VRAM.
	modelDisplay = "display"

	defaultVRAM lab.Bytes = 256 * lab.MiB
	// maxVRAM leaves room for the windows of all ports in the 40 address bits of the CPU.
	maxVRAM = 1 * lab.GiB
)

// hasVRAM reports whether the GPU has memory behind a BAR.
func (g *GPU) hasVRAM() bool { return g.Memory > 0 }

func (p *Profile) hasVRAM() bool {
	return p != nil && slices.ContainsFunc(p.GPUs, func(g GPU) bool { return g.hasVRAM() })
}

// VRAM returns the sum of the GPUs' memory. It takes memory of this machine once it is used.
func (p *Profile) VRAM() lab.Bytes {
	return lists.Sum(p.GPUs, func(g GPU) lab.Bytes { return g.Memory })
}

// checkGPU also sets the default memory.
func (p *Profile) checkGPU(d device) *fault {
	g := d.gpu
	_, known := gpu.ModelOf(g.Model)
	display := g.Model == modelDisplay || g.Model == ""
	switch {
	case !known && g.Model != modelDisplay:
		return faultf(d.path+".model", "model %q: want %s", g.Model, words.Or(append(gpu.Models(), modelDisplay)))
	case display && g.Memory != 0:
		return faultf(d.path+".memory", "memory %v: a display has none: remove memory, or say model: %s", g.Memory,
			gpu.Generic)
	case display:
		return nil
	case p.onBridge(g.Behind):
		return faultf(d.path+".model", "model %s: a conventional PCI bus has only displays: remove model", g.Model)
	case p.hasConsole(g):
		return faultf(d.path+".model", "model %s: the first GPU has the console: set screen: true, or remove model",
			g.Model)
	}
	g.Memory = cmp.Or(g.Memory, defaultVRAM)
	if g.Memory < gpu.MinMemory || g.Memory > maxVRAM || g.Memory&(g.Memory-1) != 0 {
		return faultf(d.path+".memory", "memory %v: want a power of two from %v to %v", g.Memory,
			lab.Bytes(gpu.MinMemory), maxVRAM)
	}
	return nil
}

// hasConsole reports whether firmware and kernel show their console on the GPU.
func (p *Profile) hasConsole(g *GPU) bool { return !p.Screen && g == &p.GPUs[0] }

func gpuID(g *GPU) string { return fmt.Sprintf("gpu%02x-%02x", g.Address.Bus, g.Address.Device) }

func gpuSocket(dir string, g *GPU) string { return filepath.Join(dir, gpuID(g)+".sock") }

// listenGPUs takes the serial numbers from the name of the host, so that the GPUs of two hosts differ.
func listenGPUs(dir string, p *Profile, log func(format string, args ...any)) (all []*gpu.GPU, err error) {
	for i := range p.GPUs {
		g := &p.GPUs[i]
		if !g.hasVRAM() {
			continue
		}
		one, err := gpu.Listen(gpu.Config{Name: filepath.Base(dir) + "." + gpuID(g), Socket: gpuSocket(dir, g),
			Memory: uint64(g.Memory), Model: g.Model, Personality: gpu.VFIO, Log: log})
		if err != nil {
			return nil, errors.Join(err, closeGPUs(all))
		}
		all = append(all, one)
	}
	return all, nil
}

func closeGPUs(all []*gpu.GPU) error { return errors.Join(lists.Map(all, (*gpu.GPU).Close)...) }
