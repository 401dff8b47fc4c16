package qemu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
)

// The memory of a node with adapters is shared with their server, so a clone needs a copy. But adapters have no use for
// the kernel itself and the image's files: blocks with nothing else are mapped from the template, copied on write. If
// an adapter accesses one anyway, its server asks QEMU (see vfiouser.Memory).
//
// QEMU supports memory in several files only as NUMA nodes, which the kernel is told to ignore. If the node has NUMA
// nodes, each is one block, and all memory is copied.

type block struct {
	Bytes int64 `json:"bytes"`
	// Shared memory is mapped by the adapters' server, instead of copied on write.
	Shared bool `json:"shared"`

	path string // path of its file
}

func (b block) args(i int, cpus string) []string {
	object := vm.MemoryFile(fmt.Sprintf("ram%d", i), b.Bytes, b.path, b.Shared)
	if !b.Shared { // the server recognizes unshared memory by its read-only file
		object += ",readonly=on,rom=off"
	}
	node := fmt.Sprintf("node,nodeid=%d,memdev=ram%d", i, i)
	if cpus != "" {
		node += ",cpus=" + cpus
	}
	return []string{"-object", object, "-numa", node}
}

// nodeCPUs returns a range, or "". The first node has all CPUs, unless the guest sees several nodes.
func (s Spec) nodeCPUs(node int) string {
	nodes := max(s.NUMANodes, 1)
	if node >= nodes {
		return ""
	}
	first := func(node int) int { return (node*s.CPUs + nodes - 1) / nodes }
	if first(node) == first(node+1) {
		return ""
	}
	return fmt.Sprintf("%d-%d", first(node), first(node+1)-1)
}

func numaBlocks(memory int64, nodes int) []block {
	all := make([]block, nodes)
	for i := range all {
		n := int64(i)
		all[i] = block{Bytes: memory/mib*(n+1)/int64(nodes)*mib - memory/mib*n/int64(nodes)*mib, Shared: true}
	}
	all[nodes-1].Bytes += memory % mib
	return all
}

const mib = 1 << 20

// blocksFormat is increased to remake templates with a different division.
const blocksFormat = 2

// blocks makes small blocks at the expected places of the kernel and files. The kernel is at 16 MiB, with some 50 MiB.
// QEMU puts the packed image at the end; its files are unpacked below it and below the kernel's page table, downwards.
// A wrong guess only costs memory.
func blocks(memory, image int64) []block {
	var all []block
	at := int64(0)
	to := func(end, step int64) {
		for at < end {
			n := min(step, end-at)
			all = append(all, block{Bytes: n, Shared: true})
			at += n
		}
	}
	const kernel, kernelEnd = 16 * mib, 68 * mib
	end := (memory - image - memory/64 - 8*mib) / (4 * mib) * (4 * mib)
	files := max(end-image/(4*mib)*(4*mib), kernelEnd)
	if memory > 2<<30 || end <= files { // not contiguous for the guest above 2 GiB
		to(memory, memory)
		return all
	}
	to(kernel, kernel)
	to(kernelEnd, 2*mib)
	to(files, memory)
	to(end, 4*mib)
	to(memory, memory)
	return all
}

// Flags in /proc/kpageflags (Linux, include/uapi/linux/kernel-page-flags.h and fs/proc/page.c).
const (
	pageUnevictable = 1 << 18 // of a file in memory
	pageNone        = 1 << 20
	pageReserved    = 1 << 32 // the kernel's, since boot
	pageFree        = 1 << 10
)

// keepCold marks blocks of only kernel and files, with few pages of file tables and none of the places, as copied on
// write.
func keepCold(all []block, flags []uint64, places [][]int64) {
	const page = 4096
	at := int64(0)
	for i := range all {
		b := &all[i]
		from, end := at, at+b.Bytes
		at = end
		if end > int64(len(flags))*page {
			return
		}
		hot, free := 0, 0
		for _, f := range flags[from/page : end/page] {
			switch {
			case f&pageFree != 0:
				free++
			case f&(pageUnevictable|pageReserved|pageNone) == 0:
				hot++
			}
		}
		const tables = 50 // one page in so many
		named := slices.ContainsFunc(places, func(p []int64) bool {
			return slices.ContainsFunc(p, func(a int64) bool { return a >= from && a < end })
		})
		b.Shared = free > 0 || hot > int(b.Bytes/page)/tables || named
	}
}

func pageFlags(ctx context.Context, a *guest.Agent, memory int64) ([]uint64, error) {
	out, err := a.Output(ctx, "tail", "-c", fmt.Sprintf("+%d", memory/4096*8+1), "/proc/kpageflags")
	if err != nil {
		return nil, err
	}
	flags := make([]uint64, len(out)/8)
	for i := range flags {
		flags[i] = binary.LittleEndian.Uint64(out[8*i:]) // the guest CPU's byte order
	}
	return flags, nil
}

// fileBlocks lists a template's blocks.
const fileBlocks = "memory.json"

func blockFile(i int) string { return fmt.Sprintf("%s%d", fileRAM, i) }

// readBlocks copies the files of shared blocks.
func readBlocks(dir string, sockets vm.Sockets) (all []block, files []*os.File, err error) {
	if err := atomicfile.ReadJSON(filepath.Join(dir, fileBlocks), &all); err != nil {
		return nil, nil, fmt.Errorf("memory of the template: %w", err)
	}
	for i := range all {
		if all[i].path = filepath.Join(dir, blockFile(i)); !all[i].Shared {
			continue
		}
		f, err := vm.NewSharedMemory(all[i].path, all[i].Bytes)
		if err != nil {
			closeAll(files)
			return nil, nil, err
		}
		all[i].path, files = sockets.SharedMemory(len(files)), append(files, f)
	}
	return all, files, nil
}

func emptyBlocks(s Spec) ([]block, []*os.File, error) {
	all := numaBlocks(s.Memory, max(s.NUMANodes, 1))
	var files []*os.File
	for i := range all {
		f, err := vm.NewSharedMemory("", all[i].Bytes)
		if err != nil {
			closeAll(files)
			return nil, nil, err
		}
		all[i].path, files = s.sockets().SharedMemory(i), append(files, f)
	}
	return all, files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func writeName(all []block, files []*os.File, name []byte, at int64) error {
	for _, b := range all {
		if at < b.Bytes {
			if !b.Shared {
				break
			}
			_, err := files[0].WriteAt(name, at)
			return err
		}
		at -= b.Bytes
		if b.Shared {
			files = files[1:]
		}
	}
	return errors.New("memory of the template: a name of an adapter is outside of what is shared")
}
