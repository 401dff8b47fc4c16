package gpu

import (
	"hash/fnv"

	"github.com/rackless/rackless/rdma/vfiouser"
)

// BAR 0 has the registers, in pages of their own: QEMU emulates the MSI-X table, and puts it over its page.
const (
	bar0Size = 32 << 10
	vramBAR  = 2 // 64 bits, prefetchable

	regCommon = 0x0000
	regISR    = 0x1000
	msixTable = 0x2000
	msixPBA   = 0x3000
	regDevice = 0x4000
	regNotify = 0x5000

	vectors     = 3 // MSI-X: configuration, and each queue
	notifyBytes = 4 // distance of the queues' notification registers
)

const (
	cfgCommand = 0x04
	cfgBAR0    = 0x10
	cfgVRAM    = 0x18
	cfgBARs    = 24 // bytes of all BARs
	cfgExp     = 0x40
	cfgMSIX    = 0x7c
	cfgPM      = 0x88
	cfgCommon  = 0x90
	cfgNotify  = 0xa0
	cfgISR     = 0xb4
	cfgDevice  = 0xc4
	cfgShared  = 0xd4
	cfgWindow  = 0xec
	cfgSerial  = 0x100

	cfgDevCtl = cfgExp + 8
)

const (
	commandMemory = 1 << 1
	commandMaster = 1 << 2
)

// Types of virtio capabilities, chapter 4.1.4.
const (
	capCommon = 1
	capNotify = 2
	capISR    = 3
	capDevice = 4
	capWindow = 5
	capShared = 8
)

// sharedVRAM is the id of memory that is visible to the guest, chapter 5.7.6.
const sharedVRAM = 1

// hardReset does a power-on or function level reset. The interrupt pin stays 0, since INTx is not supported. It needs
// mu, unless the GPU is not in use yet.
func (g *GPU) hardReset() {
	g.describe()
	g.publish()
	g.virtioReset()
}

// functionReset does a function level reset, except that the BARs keep their addresses: QEMU answers the guest's
// reads of BARs itself, so a guest that restores them sees that they are as before, and writes nothing.
func (g *GPU) functionReset() {
	var bars [cfgBARs]byte
	copy(bars[:], g.config[cfgBAR0:])
	g.hardReset()
	copy(g.config[cfgBAR0:], bars[:])
}

func (g *GPU) describe() {
	g.config = [4096]byte{}
	c := g.config[:]
	le.PutUint16(c[6:], 0x10) // has capabilities
	c[8] = 1
	le.PutUint16(c[10:], g.cfg.Class)
	le.PutUint32(c[cfgVRAM:], 0xc)
	le.PutUint16(c[0x2c:], vendorVirtio)
	le.PutUint16(c[0x2e:], g.model.Subsystem)
	c[0x34] = cfgExp
	g.express(c[cfgExp:])
	if g.plain() {
		g.describePlain()
	} else {
		g.describeVirtio()
	}
	// Software in the guest recognizes a GPU by its serial number. Those of GPUs with different names differ.
	h := fnv.New64a()
	_, _ = h.Write([]byte(g.cfg.Name))
	le.PutUint32(c[cfgSerial:], 1<<16|3)
	le.PutUint64(c[cfgSerial+4:], h.Sum64())
}

// describeVirtio fills in the ids and capabilities of a virtio GPU.
func (g *GPU) describeVirtio() {
	c := g.config[:]
	le.PutUint16(c[0:], vendorVirtio)
	le.PutUint16(c[2:], 0x1040+deviceGPU)
	c[cfgExp+1] = cfgMSIX
	c[cfgMSIX], c[cfgMSIX+1] = 0x11, cfgPM
	le.PutUint16(c[cfgMSIX+2:], vectors-1)
	le.PutUint32(c[cfgMSIX+4:], msixTable)
	le.PutUint32(c[cfgMSIX+8:], msixPBA)
	c[cfgPM], c[cfgPM+1] = 1, cfgCommon
	le.PutUint16(c[cfgPM+2:], 3)

	virtioCap(c[cfgCommon:cfgNotify], cfgNotify, capCommon, regCommon, commonSize)
	virtioCap(c[cfgNotify:cfgISR], cfgISR, capNotify, regNotify, notifyBytes*numQueues)
	le.PutUint32(c[cfgNotify+16:], notifyBytes)
	virtioCap(c[cfgISR:cfgDevice], cfgDevice, capISR, regISR, 1)
	virtioCap(c[cfgDevice:cfgShared], cfgShared, capDevice, regDevice, deviceSize)
	virtioCap(c[cfgShared:cfgWindow], cfgWindow, capShared, 0, uint32(g.cfg.Memory))
	c[cfgShared+4], c[cfgShared+5] = vramBAR, sharedVRAM
	le.PutUint32(c[cfgShared+20:], uint32(g.cfg.Memory>>32))
	virtioCap(c[cfgWindow:cfgSerial], 0, capWindow, 0, 0)
}

// express describes an endpoint with function level reset and the model's link.
func (g *GPU) express(c []byte) {
	speed, width := uint16(g.model.Gen), uint16(g.model.Width)
	c[0] = 0x10
	le.PutUint16(c[2:], 2)
	le.PutUint32(c[4:], 0x10008fe2)
	le.PutUint32(c[12:], uint32(speed|width<<4))
	le.PutUint16(c[18:], speed|width<<4)
	le.PutUint32(c[0x2c:], 1<<(speed+1)-2)
	le.PutUint16(c[0x30:], speed)
}

func virtioCap(c []byte, next, kind byte, off, size uint32) {
	c[0], c[1], c[2], c[3] = 9, next, byte(len(c)), kind
	le.PutUint32(c[8:], off)
	le.PutUint32(c[12:], size)
}

// publish makes the address of the VRAM known to VRAM.
func (g *GPU) publish() {
	var bar uint64
	if g.config[cfgCommand]&commandMemory != 0 {
		bar = le.Uint64(g.config[cfgVRAM:])&^0xf | 1
	}
	g.bar.Store(bar)
}

// writable bits can be changed by software, apart from the BARs.
var writable = map[uint64]byte{cfgCommand: 0x46, cfgCommand + 1: 0x05, 0x0c: 0xff, 0x3c: 0xff,
	cfgPM + 4: 0x03, cfgPM + 5: 0x01, cfgDevCtl: 0xff, cfgDevCtl + 1: 0x7f, cfgExp + 16: 0xc3, cfgExp + 17: 0x0f,
	cfgExp + 0x28: 0x1f, cfgExp + 0x29: 0xe4, cfgExp + 0x30: 0x3f, cfgMSIX + 3: 0xc0,
	cfgWindow + 4: 0xff, cfgWindow + 8: 0xff, cfgWindow + 9: 0xff, cfgWindow + 10: 0xff, cfgWindow + 11: 0xff,
	cfgWindow + 12: 0x07}

// writableBits returns no bits of a BAR below its size, by which software measures it.
func (g *GPU) writableBits(at uint64) byte {
	switch {
	case g.plain() && !plainWritable(at):
		return 0
	case at >= cfgBAR0 && at < cfgBAR0+4:
		return byte(^uint32(bar0Size-1) >> (8 * (at - cfgBAR0)))
	case at >= cfgVRAM && at < cfgVRAM+8:
		return byte(^(g.cfg.Memory - 1) >> (8 * (at - cfgVRAM)))
	}
	return writable[at]
}

// configWrite returns the queue that is notified through the window, or -1. Other bits are read-only, so that a guest
// cannot turn the GPU into another device.
func (g *GPU) configWrite(off uint64, p []byte) (queue int) {
	if g.plain() {
		g.restored = false // no register will be accessed
	}
	for i, v := range p {
		at := off + uint64(i)
		if at == cfgDevCtl+1 && v&0x80 != 0 { // initiate function level reset
			g.functionReset()
			return -1
		}
		m := g.writableBits(at)
		g.config[at] = g.config[at]&^m | v&m
	}
	g.publish()
	if w := g.window(off, len(p)); w != nil {
		return w.access(g, true, p)
	}
	return -1
}

func (g *GPU) configRead(off uint64, p []byte) {
	copy(p, g.config[off:])
	if w := g.window(off, len(p)); w != nil {
		w.access(g, false, p)
	}
}

// window leads to the BARs through configuration space, for guests that cannot map them, chapter 4.1.4.9.
type window struct {
	region int
	off    uint64
}

// window returns nil if an access is beyond the registers or differs in length from the capability.
func (g *GPU) window(off uint64, n int) *window {
	if g.plain() {
		return nil
	}
	c := g.config[cfgWindow:]
	at, length := uint64(le.Uint32(c[8:])), uint64(le.Uint32(c[12:]))
	if off != cfgWindow+16 || uint64(n) != length || length != 1 && length != 2 && length != 4 || at%length != 0 {
		return nil
	}
	switch {
	case c[4] == vfiouser.RegionBAR0 && at <= bar0Size-length, c[4] == vramBAR && at <= g.cfg.Memory-length:
		return &window{int(c[4]), at}
	}
	return nil
}

func (w *window) access(g *GPU, write bool, p []byte) (queue int) {
	switch {
	case w.region == vramBAR && write:
		copy(g.vram[w.off:], p)
	case w.region == vramBAR:
		copy(p, g.vram[w.off:])
	case write:
		g.resumed()
		return g.barWrite(w.off, p)
	default:
		g.resumed()
		g.barRead(w.off, p)
	}
	return -1
}
