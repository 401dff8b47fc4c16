package gpu

import (
	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/internal/lists"
)

// Fault is a failure, for tests of programs that must notice it.
type Fault string

// Healthy and the others last until the next SetFault, or the end of the guest's machine.
const (
	Healthy Fault = ""
	// Lost is a GPU without its PCIe link: all reads return ones, and writes have no effect. A waiting driver gets its
	// answer when the fault ends.
	Lost Fault = "lost"
	// ExportRefused refuses new allocations that can be exported. Linux does not wait for the answer when it creates
	// one, so a program gets the error when it maps the memory.
	ExportRefused Fault = "export-refused"
	// PeerBlocked keeps NICs from the memory, as behind a bridge that does not pass on requests of other devices. The
	// guest's CPU reaches it, and can export and register it.
	PeerBlocked Fault = "peer-blocked"
)

// Faults lists all faults of a personality. vfio-pci exports memory without asking the GPU, which cannot refuse it.
func Faults(p Personality) []Fault {
	if p == VFIO {
		return []Fault{Lost, PeerBlocked}
	}
	return []Fault{Lost, ExportRefused, PeerBlocked}
}

func (f Fault) withdraws() bool { return f == Lost || f == PeerBlocked }

// SetFault replaces an earlier fault; Healthy ends it. The VRAM of a lost GPU is zeros afterwards.
func (g *GPU) SetFault(f Fault) {
	g.changing.Lock()
	defer g.changing.Unlock()
	g.mu.Lock()
	was := g.setFault(f)
	g.mu.Unlock()
	if was.withdraws() != f.withdraws() && g.cfg.Reach != nil {
		g.cfg.Reach()
	}
	switch {
	case was == f:
	case f == Lost:
		g.fillOnes()
	case was == Lost: // requests wait since then
		for n := range numQueues {
			g.serve(n)
		}
	}
}

// setFault changes the fault with mu held.
func (g *GPU) setFault(f Fault) (was Fault) {
	if was = g.fault; was == Lost && f != Lost {
		g.zero(0, g.cfg.Memory)
	}
	g.fault = f
	g.withdrawn.Store(f.withdraws())
	return was
}

// onesAtOnce limits how long fillOnes keeps the guest waiting.
const onesAtOnce = 1 << 20

// fillOnes overwrites VRAM in use: a device cannot take pages away that the guest has mapped, but reads of a lost GPU
// return ones.
func (g *GPU) fillOnes() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.used() {
		for at := r.start; at < r.end; at += onesAtOnce {
			if g.fault != Lost { // the machine has ended meanwhile
				return
			}
			ones(g.vram[at:min(at+onesAtOnce, r.end)])
			g.mu.Unlock()
			g.mu.Lock()
		}
	}
}

// extent is a part of the VRAM.
type extent struct{ start, end uint64 }

// used returns the parts of the VRAM that programs use: allocations, or the pages of a plain GPU that have been
// written.
func (g *GPU) used() (all []extent) {
	if !g.plain() {
		return lists.Map(g.memory.placed, func(b *blob) extent { return extent{b.offset, b.offset + b.size} })
	}
	for at := int64(0); ; {
		start, err := unix.Seek(g.fd, at, unix.SEEK_DATA)
		if err != nil { // no data after it
			return all
		}
		if at, err = unix.Seek(g.fd, start, unix.SEEK_HOLE); err != nil {
			return all
		}
		all = append(all, extent{uint64(start), uint64(at)})
	}
}

func ones(p []byte) {
	for i := range p {
		p[i] = 0xff
	}
}
