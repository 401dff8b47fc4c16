package vfiouser

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxMaps limits a client's table. QEMU refuses a larger offer.
const maxMaps = 65535

// Memory is the part of a client's memory that a device may access, by the client's addresses (IOVAs).
//
// A file is mapped once, although QEMU maps and unmaps parts of it repeatedly at boot. Removing an entry unmaps
// nothing, so no slice dangles.
//
// Methods that read the table require the read lock (Config.Maps) until their slices are no longer used.
type Memory struct {
	lock  *sync.RWMutex
	files map[fileID]*file
	// outgrown are mappings of files that have grown
	outgrown []*file
	table    []entry // by address, without overlaps
	last     atomic.Pointer[entry]
	gen      atomic.Uint64
	remote   func(write bool, addr uint64, p []byte) bool
	peer     func(addr, size uint64) []byte // Config.Peer
	peers    int                            // entries of the table that peer found
	// withdrawn is memory that peers have withdrawn. It is not in the table, so every access fails.
	withdrawn []entry
}

type fileID struct{ dev, ino uint64 }

type file struct {
	m []byte
	// A file that the client may only read is mapped read-only: writing to it would be a SIGSEGV of this process, with
	// the devices of all guests.
	writable bool
}

type entry struct {
	addr, size uint64
	m          []byte // nil if accessed by messages
	readonly   bool
	peer       bool // m is memory of a peer
}

// holds avoids sums, which could wrap: addresses come from the client, or with an IOMMU from the guest.
func (e *entry) holds(addr, n uint64) bool {
	return addr >= e.addr && addr-e.addr < e.size && n <= e.size-(addr-e.addr)
}

// Gen returns a number that changes with the table.
func (m *Memory) Gen() uint64 { return m.gen.Load() }

func (e *entry) overlaps(addr, n uint64) bool { return e.addr-addr < n || addr-e.addr < e.size }

// find returns nil unless one mapping holds all bytes. It tries the last entry first, because most accesses are to one
// file of RAM. changed clears it, because it points into the table.
func (m *Memory) find(addr, n uint64) *entry {
	if e := m.last.Load(); e != nil && e.holds(addr, n) {
		return e
	}
	i, ok := slices.BinarySearchFunc(m.table, addr, func(e entry, a uint64) int { return cmp.Compare(e.addr, a) })
	if !ok {
		i--
	}
	if i < 0 || !m.table[i].holds(addr, n) {
		return nil
	}
	m.last.Store(&m.table[i])
	return &m.table[i]
}

// Slice returns n bytes, or nil if they are not all in one writable mapping of a file. Guests write at any time, so
// values must be copied before they are checked.
func (m *Memory) Slice(addr uint64, n int) []byte {
	if n < 0 {
		return nil
	}
	e := m.find(addr, uint64(n))
	if e == nil || e.m == nil || e.readonly {
		return nil
	}
	o := addr - e.addr
	return e.m[o : o+uint64(n) : o+uint64(n)]
}

// Has reports whether n bytes are in one mapping of any kind.
func (m *Memory) Has(addr uint64, n int) bool { return n >= 0 && m.find(addr, uint64(n)) != nil }

// HasPeers reports whether memory of peers is mapped.
func (m *Memory) HasPeers() bool { return m.peers > 0 }

// OfPeer reports whether addr is in a peer's memory.
func (m *Memory) OfPeer(addr uint64) bool {
	e := m.find(addr, 1)
	return e != nil && e.peer
}

// Read copies from addr. Messages use a copy of p, so that p can be on the caller's stack and the common case allocates
// nothing.
func (m *Memory) Read(addr uint64, p []byte) bool {
	e := m.find(addr, uint64(len(p)))
	switch {
	case e == nil:
		return false
	case e.m == nil:
		b := make([]byte, len(p))
		done := m.remote != nil && m.remote(false, addr, b)
		copy(p, b)
		return done
	}
	copy(p, e.m[addr-e.addr:])
	return true
}

// Write copies p to addr.
func (m *Memory) Write(addr uint64, p []byte) bool {
	e := m.find(addr, uint64(len(p)))
	switch {
	case e == nil || e.readonly:
		return false
	case e.m == nil:
		return m.remote != nil && m.remote(true, addr, bytes.Clone(p))
	}
	copy(e.m[addr-e.addr:], p)
	return true
}

// Load32 reads a big-endian word in one access, at a multiple of 4. A plain copy might see half of a doorbell record
// that the guest is writing.
func (m *Memory) Load32(addr uint64) (uint32, bool) {
	var w [4]byte
	if b := m.Slice(addr&^3, 4); b != nil {
		*(*uint32)(unsafe.Pointer(&w[0])) = atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[0])))
	} else if !m.Read(addr&^3, w[:]) {
		return 0, false
	}
	return binary.BigEndian.Uint32(w[:]), true
}

// Store32 writes w in one access, after all earlier writes, at a multiple of 4.
func (m *Memory) Store32(addr uint64, w [4]byte) bool {
	b := m.Slice(addr&^3, 4)
	if b == nil {
		return m.Write(addr&^3, w[:])
	}
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&b[0])), *(*uint32)(unsafe.Pointer(&w[0])))
	return true
}

// mmap maps a whole file, which can be any. Device and inode identify it, because each DMA_MAP has a new descriptor. A
// file that shrinks later would be a SIGBUS; QEMU seals the size of its memfds by default.
func (m *Memory) mmap(fd int) (*file, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	id := fileID{st.Dev, st.Ino}
	if f := m.files[id]; f != nil && int64(len(f.m)) == st.Size {
		return f, nil
	}
	if st.Size <= 0 || st.Size > 1<<46 || len(m.files)+len(m.outgrown) >= 64 {
		return nil, errors.New("vfio-user: a file of memory is empty or too large, or there are too many")
	}
	f := &file{writable: true}
	var err error
	f.m, err = unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		f.writable = false
		if f.m, err = unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED); err != nil {
			return nil, err
		}
	}
	if m.files == nil {
		m.files = map[fileID]*file{}
	}
	if old := m.files[id]; old != nil { // the table may still point into it
		m.outgrown = append(m.outgrown, old)
	}
	m.files[id] = f
	return f, nil
}

func isReadOnly(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_ACCMODE == unix.O_RDONLY
}

// Map adds a mapping. fd remains the caller's, and is -1 for memory without a file. Mappings must not overlap, for the
// binary search. Behind an IOMMU they are single pages, so the table is large.
func (m *Memory) Map(fd int, off, addr, size uint64, writable bool) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	if size == 0 || addr+size-1 < addr || len(m.table)+len(m.withdrawn) >= maxMaps {
		return errors.New("vfio-user: an empty mapping, or too many")
	}
	e := entry{addr: addr, size: size, readonly: !writable}
	// A read-only file for writable guest memory is copy on write in the client.
	if fd >= 0 && !(writable && isReadOnly(fd)) {
		f, err := m.mmap(fd)
		if err != nil {
			return err
		}
		// Access beyond the end of the file would be a SIGBUS.
		if off > uint64(len(f.m)) || size > uint64(len(f.m))-off {
			return errors.New("vfio-user: a mapping leaves its file")
		}
		e.m, e.readonly = f.m[off:off+size], e.readonly || !f.writable
	}
	// QEMU has no file for the BAR of another device.
	if fd < 0 && m.peer != nil {
		e.m = m.peer(addr, size)
		e.peer = e.m != nil
	}
	if slices.ContainsFunc(m.withdrawn, func(w entry) bool { return w.overlaps(addr, size) }) || !m.insert(e) {
		return errors.New("vfio-user: a mapping overlaps another")
	}
	m.changed()
	return nil
}

// insert adds a mapping to the table or to withdrawn, or returns false if it overlaps another.
func (m *Memory) insert(e entry) bool {
	i, _ := slices.BinarySearchFunc(m.table, e.addr, func(e entry, a uint64) int { return cmp.Compare(e.addr, a) })
	switch {
	case i > 0 && m.table[i-1].holds(e.addr, 0), i < len(m.table) && m.table[i].addr-e.addr < e.size:
		return false
	case e.peer && len(e.m) == 0:
		m.withdrawn = append(m.withdrawn, e)
	default:
		m.table = slices.Insert(m.table, i, e)
		if e.peer {
			m.peers++
		}
	}
	return true
}

// AskPeers asks again for peers' memory, and waits until no device uses it. It must be called if a peer withdraws
// memory or offers it again. Nothing reaches withdrawn memory afterwards.
func (m *Memory) AskPeers() {
	m.lock.Lock()
	defer m.lock.Unlock()
	all := m.withdrawn
	m.withdrawn = nil
	m.table = slices.DeleteFunc(m.table, func(e entry) bool {
		if e.peer {
			all = append(all, e)
		}
		return e.peer
	})
	for _, e := range all {
		if e.m = m.peer(e.addr, e.size); e.m == nil {
			e.m = []byte{} // the peer has moved; the client takes the address back
		}
		m.insert(e)
	}
	m.countPeers()
	m.changed()
}

// remove returns false if a mapping is only partly within the range. A range without mappings is no error, as with the
// kernel's VFIO, because QEMU clears a whole address space when the guest changes its IOMMU domain. The write lock
// waits until no device uses the memory, because the client may reuse it after the reply.
func (m *Memory) remove(addr, size uint64, all bool) bool {
	m.lock.Lock()
	defer m.lock.Unlock()
	whole := true
	gone := func(e entry) bool {
		within := all || e.addr >= addr && e.addr-addr < size && e.size <= size-(e.addr-addr)
		whole = whole && (within || !e.overlaps(addr, size))
		return within
	}
	m.table, m.withdrawn = slices.DeleteFunc(m.table, gone), slices.DeleteFunc(m.withdrawn, gone)
	m.countPeers()
	m.changed()
	return whole
}

func (m *Memory) changed() {
	m.last.Store(nil)
	m.gen.Add(1)
}

// countPeers serves many changes: behind an IOMMU a guest has too many entries to count after each.
func (m *Memory) countPeers() {
	m.peers = 0
	for i := range m.table {
		if m.table[i].peer {
			m.peers++
		}
	}
}

// clear unmaps all files, with the lock, so that no slices are in use.
func (m *Memory) clear() {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, f := range m.files {
		_ = unix.Munmap(f.m)
	}
	for _, f := range m.outgrown {
		_ = unix.Munmap(f.m)
	}
	m.files, m.outgrown, m.table, m.withdrawn, m.peers = nil, nil, nil, nil, 0
	m.changed()
}
