// Package gpu emulates a GPU as other PCI devices see one: memory (VRAM) behind a BAR. It computes nothing and draws
// nothing.
//
// To the guest it is a virtio GPU, so that the kernel's virtio_gpu driver manages the VRAM (blob resources of the kind
// HOST3D) and exports it as dma-bufs. Chapters refer to the virtio specification, version 1.2. With the
// personality VFIO it is a 3D controller without an interface of its own, whose VRAM vfio-pci hands out.
package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/rdma/vfiouser"
)

// Limits of Config.Memory.
const (
	MinMemory = 16 << 20
	MaxMemory = 64 << 30
)

// Class3D is the default PCI class: a 3D controller, as a GPU without outputs has. The kernel's driver finds its device
// by ids, so the class is for tools.
const Class3D = 0x0302

// Config describes a GPU.
type Config struct {
	Name   string // for logs and serial number
	Socket string // path to which QEMU connects
	Memory uint64 // bytes, a power of two; 0 for the model's
	Model  string // see Models
	Class  uint16 // PCI class and subclass; 0 for Class3D
	// Personality decides which driver of the guest takes the GPU; "" means Virtio.
	Personality Personality
	// Reach, if set, is called when NICs can no longer reach the VRAM, or can again. It must make them ask VRAM again,
	// and return when they have done so.
	Reach func()
	Log   func(format string, args ...any)
}

// GPU is for one guest.
type GPU struct {
	cfg   Config
	model Model
	vram  []byte
	fd    int // file of vram
	vfu   *vfiouser.Server
	// maps is the lock of the guest's memory. Only this GPU uses it, so no other device waits for its guest.
	maps sync.RWMutex
	// bar is the address of the VRAM, with bit 0 set, or 0 if it is not enabled.
	bar      atomic.Uint64
	messages atomic.Uint64
	// withdrawn means that NICs cannot reach the VRAM.
	withdrawn atomic.Bool

	changing sync.Mutex // of SetFault, taken first
	// serving is held while a queue is served, which may wait for memory of the guest. It is taken before mu.
	serving sync.Mutex
	pieces  []piece // buffer of serve

	// mu guards the rest. It is never held while memory of the guest is accessed.
	mu        sync.Mutex
	connected bool
	// restored lets resets of QEMU pass after Restore, until the first access to the registers.
	restored bool
	// blamed means that a violation has been logged, so that a guest cannot fill the log.
	blamed bool
	fault  Fault
	config [4096]byte
	virtio virtio
	memory memory
}

// Status is the state of a GPU.
type Status struct {
	Connected bool   // a QEMU is connected
	Driver    bool   // a driver uses the GPU; with the personality VFIO, its memory is enabled
	Broken    bool   // by a violation; the driver must reset the GPU
	Address   uint64 // guest-physical, of the VRAM; 0 if not enabled
	Memory    uint64 // bytes of VRAM
	Blobs     int    // allocations of VRAM
	Allocated uint64 // their bytes
	Mapped    uint64 // bytes that programs of the guest can reach
	Resident  uint64 // bytes of VRAM in host memory: pages used since they were last freed
	Messages  uint64 // accesses to VRAM by message; none once QEMU has mapped the file
	Fault     Fault
}

// Listen creates a GPU and its socket for QEMU.
func Listen(c Config) (*GPU, error) {
	m, ok := ModelOf(c.Model)
	if !ok {
		return nil, fmt.Errorf("gpu: unknown model %q; there are %q", c.Model, Models())
	}
	if c.Memory == 0 {
		c.Memory = m.Memory
	}
	if c.Memory < MinMemory || c.Memory > MaxMemory || c.Memory&(c.Memory-1) != 0 {
		return nil, fmt.Errorf("gpu: %d bytes of memory: must be a power of two from 16 MiB to 64 GiB", c.Memory)
	}
	if c.Class == 0 {
		c.Class = Class3D
	}
	if c.Personality == "" {
		c.Personality = Virtio
	}
	if !slices.Contains(Personalities(), c.Personality) {
		return nil, fmt.Errorf("gpu: unknown personality %q; there are %q", c.Personality, Personalities())
	}
	g := &GPU{cfg: c, model: m}
	var err error
	if g.fd, g.vram, err = newVRAM(c.Name, c.Memory); err != nil {
		return nil, fmt.Errorf("gpu: memory of %s: %w", c.Name, err)
	}
	g.mu.Lock() // a client may connect at once
	defer g.mu.Unlock()
	g.hardReset()
	g.vfu, err = vfiouser.Listen(vfiouser.Config{Path: c.Socket, BAR0: bar0Size, Vectors: g.vectors(), Maps: &g.maps,
		NoDMA: g.plain(), Shared: map[int]vfiouser.Shared{vramBAR: {Size: c.Memory, FD: g.fd}}, Log: g.logf},
		(*device)(g))
	if err != nil {
		return nil, errors.Join(err, g.freeVRAM())
	}
	return g, nil
}

// newVRAM returns a file of zeros and its mapping. Its size is sealed, because QEMU gets the file, and a mapping beyond
// the end would be a SIGBUS of this process.
func newVRAM(name string, size uint64) (fd int, m []byte, err error) {
	fd, err = unix.MemfdCreate("vram-"+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, nil, err
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		m, err = unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, nil, err
	}
	return fd, m, nil
}

func (g *GPU) freeVRAM() error {
	g.bar.Store(0)
	return errors.Join(unix.Munmap(g.vram), unix.Close(g.fd))
}

// Close disconnects QEMU and frees the VRAM. Its slices must no longer be used, so NICs of the guest are closed first.
func (g *GPU) Close() error { return errors.Join(g.vfu.Close(), g.freeVRAM()) }

// VRAM returns memory at guest-physical addresses, or nil if it is not all in an enabled BAR. If a fault keeps NICs
// from it, the slice is empty. Any goroutine may call it, and it takes no lock.
func (g *GPU) VRAM(addr, size uint64) []byte {
	bar, n := g.bar.Load(), uint64(len(g.vram))
	at := addr - bar&^1 // wraps for addresses before the BAR
	if bar == 0 || size == 0 || at >= n || size > n-at {
		return nil
	}
	if g.withdrawn.Load() {
		return g.vram[:0:0]
	}
	return g.vram[at : at+size : at+size]
}

// Status returns the state.
func (g *GPU) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Status{
		Connected: g.connected,
		Driver:    g.virtio.Status&statusDriverOK != 0,
		Broken:    g.virtio.Status&statusNeedsReset != 0,
		Address:   g.bar.Load() &^ 1,
		Memory:    g.cfg.Memory,
		Blobs:     len(g.memory.blobs),
		Allocated: g.memory.allocated,
		Mapped:    g.memory.mapped(),
		Messages:  g.messages.Load(),
		Fault:     g.fault,
	}
	if g.plain() {
		s.Driver = s.Address != 0
	}
	s.Resident = g.resident()
	return s
}

// resident returns the bytes of VRAM that take memory of the host.
func (g *GPU) resident() uint64 {
	var st unix.Stat_t
	if unix.Fstat(g.fd, &st) != nil {
		return 0
	}
	return uint64(st.Blocks) * 512
}

func (g *GPU) logf(format string, args ...any) {
	if g.cfg.Log != nil {
		g.cfg.Log(g.cfg.Name+": "+format, args...)
	}
}

var le = binary.LittleEndian

// device is the GPU as QEMU sees it. All calls but ReadNow come from the connection's thread.
type device GPU

// Connected implements vfiouser.Device.
func (d *device) Connected() {
	g := (*GPU)(d)
	g.mu.Lock()
	g.connected, g.blamed = true, false
	g.mu.Unlock()
	d.Reset()
}

// Disconnected implements vfiouser.Device.
func (d *device) Disconnected() {
	g := (*GPU)(d)
	g.mu.Lock()
	defer g.mu.Unlock()
	// The machine's NICs have ended, too, so Reach has nothing to do.
	g.setFault(Healthy)
	g.connected, g.restored = false, false
	g.hardReset()
}

// Reset must not undo Restore, because QEMU resets a device when it connects.
func (d *device) Reset() {
	g := (*GPU)(d)
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.restored {
		g.hardReset()
	}
}

// Read includes VRAM, until QEMU maps the file.
func (d *device) Read(region int, off uint64, p []byte) {
	g := (*GPU)(d)
	g.mu.Lock()
	defer g.mu.Unlock()
	if region == vramBAR {
		g.messages.Add(1)
	}
	switch {
	case g.fault == Lost:
		ones(p)
	case region == vramBAR:
		copy(p, g.vram[off:])
	case region == vfiouser.RegionConfig:
		g.configRead(off, p)
	default:
		g.resumed()
		g.barRead(off, p)
	}
}

// ReadNow waits for nothing, because no lock is held during a wait for memory of the guest.
func (d *device) ReadNow(region int, off uint64, p []byte) bool {
	d.Read(region, off, p)
	return true
}

// Write implements vfiouser.Device.
func (d *device) Write(region int, off uint64, p []byte) {
	g := (*GPU)(d)
	if n := g.write(region, off, p); n >= 0 {
		g.serve(n)
	}
}

// write changes a register, and returns the queue that the guest has notified, or -1.
func (g *GPU) write(region int, off uint64, p []byte) (queue int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if region == vramBAR {
		g.messages.Add(1)
	}
	switch {
	case g.fault == Lost:
		return -1
	case region == vramBAR:
		copy(g.vram[off:], p)
		return -1
	case region == vfiouser.RegionConfig:
		return g.configWrite(off, p)
	}
	g.resumed()
	return g.barWrite(off, p)
}
