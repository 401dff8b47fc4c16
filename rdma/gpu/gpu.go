// Package gpu emulates a GPU as far as other PCI devices see one: memory (VRAM) behind a BAR, which the drivers of the
// guest hand out in parts, and which a NIC reaches by DMA. It computes nothing and draws nothing.
//
// To the guest it is a virtio GPU, so that the kernel's own virtio_gpu driver manages the VRAM (blob resources of the
// kind HOST3D), maps it for programs, and exports it as dma-bufs. Chapters named in comments are those of the virtio
// specification, version 1.2.
package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
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

// Class3D is the PCI class of Config without one: a 3D controller, as a GPU without outputs has. The kernel's driver
// finds its device by ids, so the class is for tools.
const Class3D = 0x0302

// Config describes a GPU.
type Config struct {
	Name   string // for logs and the serial number
	Socket string // path of the socket to which QEMU connects
	Memory uint64 // bytes of VRAM, a power of two; 0 for the model's
	Model  string // see Models
	Class  uint16 // PCI class and subclass, or 0 for Class3D
	// Reach, if set, is called when NICs can no longer reach the VRAM, or can again. It must make them ask VRAM again,
	// and return when they have done so.
	Reach func()
	Log   func(format string, args ...any)
}

// GPU is an emulated GPU, for one guest.
type GPU struct {
	cfg   Config
	model Model
	vram  []byte
	fd    int // file of vram
	vfu   *vfiouser.Server
	// maps is the lock of the guest's memory. Only this GPU uses it, so no other device waits for its guest.
	maps sync.RWMutex
	// bar is the address of the VRAM, with bit 0 set, or 0 if the guest has not enabled it.
	bar atomic.Uint64
	// messages counts accesses to VRAM by message.
	messages atomic.Uint64
	// withdrawn is set while NICs cannot reach the VRAM.
	withdrawn atomic.Bool

	changing sync.Mutex // serializes SetFault, and is taken first
	// serving is held while a queue is served, which may wait for memory of the guest. It is taken before mu.
	serving sync.Mutex
	pieces  []piece // buffer of serve

	// mu guards the rest. It is never held while memory of the guest is accessed.
	mu        sync.Mutex
	connected bool
	// restored is set from Restore until the first access to the registers, and lets resets of QEMU pass.
	restored bool
	// blamed is set after a violation has been logged, so that a guest cannot fill the log.
	blamed bool
	fault  Fault
	config [4096]byte
	virtio virtio
	memory memory
}

// Status is the state of a GPU.
type Status struct {
	Connected bool   // a QEMU is connected
	Driver    bool   // a driver uses the GPU
	Broken    bool   // the driver has violated the specification, and must reset the GPU
	Address   uint64 // guest-physical address of the VRAM, or 0 if it is not enabled
	Memory    uint64 // bytes of VRAM
	Blobs     int    // allocations of VRAM
	Allocated uint64 // their bytes
	Mapped    uint64 // bytes of the allocations that programs of the guest can reach
	Resident  uint64 // bytes of VRAM that take memory of the host: pages used since they were last freed
	Messages  uint64 // accesses to VRAM that came by message; none do once QEMU has mapped the file
	Fault     Fault
}

// Listen creates a GPU and the socket to which QEMU connects.
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
	g := &GPU{cfg: c, model: m}
	var err error
	if g.fd, g.vram, err = newVRAM(c.Name, c.Memory); err != nil {
		return nil, fmt.Errorf("gpu: memory of %s: %w", c.Name, err)
	}
	g.mu.Lock() // a client may connect at once
	defer g.mu.Unlock()
	g.hardReset()
	g.vfu, err = vfiouser.Listen(vfiouser.Config{Path: c.Socket, BAR0: bar0Size, Vectors: vectors, Maps: &g.maps,
		Shared: map[int]vfiouser.Shared{vramBAR: {Size: c.Memory, FD: g.fd}}, Log: g.logf}, (*device)(g))
	if err != nil {
		return nil, errors.Join(err, g.freeVRAM())
	}
	return g, nil
}

// newVRAM returns a file of zeros, and its mapping. Its size is sealed, because QEMU gets the file, and a mapping
// beyond the end would be a SIGBUS of this process.
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

// Close disconnects QEMU and frees the VRAM. Slices of VRAM must no longer be used, so NICs of the guest are closed
// first.
func (g *GPU) Close() error { return errors.Join(g.vfu.Close(), g.freeVRAM()) }

// VRAM returns the VRAM at guest-physical addresses, or nil if they are not all in the BAR or the guest has not
// enabled it. If a fault keeps NICs from the VRAM, it returns an empty slice. It may be called at any time from any
// goroutine, and takes no lock.
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
	var st unix.Stat_t
	if unix.Fstat(g.fd, &st) == nil {
		s.Resident = uint64(st.Blocks) * 512
	}
	return s
}

func (g *GPU) logf(format string, args ...any) {
	if g.cfg.Log != nil {
		g.cfg.Log(g.cfg.Name+": "+format, args...)
	}
}

var le = binary.LittleEndian

// device is the GPU as QEMU sees it. All calls but those of ReadNow come from the thread of the connection.
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
	// The NICs of the machine have ended, too, so Reach has nothing to do.
	g.setFault(Healthy)
	g.connected, g.restored = false, false
	g.hardReset()
}

// Reset implements vfiouser.Device. QEMU resets a device when it connects, which must not undo Restore.
func (d *device) Reset() {
	g := (*GPU)(d)
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.restored {
		g.hardReset()
	}
}

// Read implements vfiouser.Device. QEMU reads VRAM by message before it maps the file.
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

// ReadNow implements vfiouser.Device. No lock is held while memory of the guest is waited for, so there is nothing to
// wait for here.
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
