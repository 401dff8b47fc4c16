package connectx

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/rdma/roce"
)

// MEMIC is memory in the card itself (ibv_alloc_dm): programs map it from the BAR, and keys of mode MEMIC make it
// usable by queues. The driver manages the pages of the BAR's part, and the card its bytes.

// The part of the BAR for device memory is its end, so that UARs keep their pages.
const (
	memicBase = barSize - memicBar
	memicBar  = 256 << 10
	// maxMemic limits the bytes of all allocations, like max_memic_size of a ConnectX-5.
	maxMemic = 128 << 10
	// memicUnit is the smallest allocation, which the driver rounds up to.
	memicUnit = 64
	modeMEMIC = 5
)

// struct device_mem_cap, which QUERY_HCA_CAP returns for this type. Alignments of more than a unit are not offered.
const capsMemory = 0xf

var memoryCaps = map[bits]uint64{0x0<<8 | 1: 1, 0x2b<<8 | 5: 6, 0x40<<8 | 64: memicBase, 0x80<<8 | 32: memicBar,
	0xa0<<8 | 32: maxMemic}

// deviceMemory are the bytes of a port's device memory, nil before the first allocation. Like the guest's memory, they
// are mapped and not on the heap: the guest reads them at any time, without the port's lock.
type deviceMemory struct{ bytes atomic.Pointer[[]byte] }

// at returns n bytes at an offset of the BAR, or nil.
func (d *deviceMemory) at(off, n uint64) []byte {
	b := d.bytes.Load()
	if b == nil || off < memicBase || off > barSize || n > barSize-off {
		return nil
	}
	return (*b)[off-memicBase:][:n:n]
}

// open maps the memory at its first use.
func (d *deviceMemory) open() error {
	if d.bytes.Load() != nil {
		return nil
	}
	b, err := unix.Mmap(-1, 0, memicBar, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err == nil {
		d.bytes.Store(&b)
	}
	return err
}

// clear makes all bytes 0, for the next driver.
func (d *deviceMemory) clear() {
	if b := d.bytes.Load(); b != nil {
		clear(*b)
	}
}

// close unmaps the memory. Nothing may use it any more.
func (d *deviceMemory) close() {
	if b := d.bytes.Swap(nil); b != nil {
		_ = unix.Munmap(*b) // fails only for a range that is not mapped
	}
}

// allocMemic reserves device memory at the first page of the range that the driver offers.
func allocMemic(p *Port, in, out []byte, _ uint32) status {
	start, room, size := be.Uint64(in[0x10:]), uint64(be.Uint32(in[0x18:])), uint64(be.Uint32(in[0x1c:]))
	if !p.newer() || size == 0 || size%memicUnit != 0 || start%pageSize != 0 || start < memicBase || start >= barSize ||
		size > room || room > barSize-start {
		return badParam
	}
	used := size
	for at, n := range p.Memic {
		if start < at+n && at < start+size {
			return badResource
		}
		used += n
	}
	if used > maxMemic || p.objects() >= maxObjects {
		return limit
	}
	if err := p.memory.open(); err != nil {
		p.logf("device memory: %v", err)
		return limit
	}
	p.Memic[start] = size
	be.PutUint64(out[8:], start)
	return ok
}

// deallocMemic frees device memory, and clears it for the next program.
func deallocMemic(p *Port, in, _ []byte, _ uint32) status {
	start := be.Uint64(in[0x10:])
	size, there := p.Memic[start]
	if !there {
		return badResource
	}
	clear(p.memory.at(start, size))
	delete(p.Memic, start)
	return ok
}

// memicOf appends n bytes at va of a key of device memory. The key's start is a place in the BAR, and its addresses
// count from 0.
func (p *Port) memicOf(out []seg, check bool, k *mkey, va, n uint64) ([]seg, roce.Fault) {
	switch {
	case va+n < va || va+n > k.Len:
		return out, roce.FaultRange
	case n == 0:
		return out, 0
	}
	at := k.Start + va
	for start, size := range p.Memic {
		if at < start || at-start > size || n > size-(at-start) {
			continue
		}
		b := p.memory.at(at, n)
		if b == nil {
			break
		}
		if check {
			return out, 0
		}
		if len(out) == maxSegs {
			return out, roce.FaultAddress
		}
		return append(out, seg{addr: at, n: n, b: b}), 0
	}
	return out, roce.FaultAddress
}
