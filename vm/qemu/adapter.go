package qemu

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/rdma/connectx"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/qapi"
)

func adapterArgs(i int, n NIC, bridge string) []string {
	port := fmt.Sprintf("cx%d", i)
	return []string{"-device",
		fmt.Sprintf("pcie-root-port,id=%s,%schassis=%d,hotplug=off,power_controller_present=off,pref64-reserve=64M",
			port, onBus(bridge), i+1), "-device", vm.VFIOUser{ID: adapterID(i), Bus: port, Socket: n.Adapter}.Device()}
}

func adapterID(i int) string { return fmt.Sprintf("nic%d", i) }

// AdapterState names the file of an adapter in a template, as saved by connectx.Port.
func AdapterState(i int) string { return fmt.Sprintf("adapter%d", i) }

func guestState(i int) string { return AdapterState(i) + ".json" }

type adapterInGuest struct {
	PCI *vm.PCIDevice
	// Names are the memory addresses of adapterNames.
	Names [][]int64
}

// adapterNames returns identifiers that the driver read once: the GUID, in both byte orders, and the permanent MAC, in
// the kernel's struct net_device followed by its kind and length. Clones get their own at these places in memory.
func adapterNames(mac [6]byte) [][]byte {
	guid := connectx.GUID(mac)
	swapped := guid
	slices.Reverse(swapped[:])
	permanent := make([]byte, 34)
	copy(permanent, mac[:])
	permanent[33] = byte(len(mac))
	return [][]byte{guid[:], swapped[:], permanent}
}

func findNames(places [][]int64, path string, from int64, names [][]byte) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	m, err := unix.Mmap(int(f.Fd()), 0, int(fi.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(m) }()
	for i, name := range names {
		for at := 0; ; at++ {
			n := bytes.Index(m[at:], name)
			if n < 0 {
				break
			}
			at += n
			places[i] = append(places[i], from+int64(at))
		}
	}
	return nil
}

// templateAdapters are emulated by this process while the template is made. The guest's driver initializes them, so
// that clones need not wait.
type templateAdapters struct {
	server *connectx.Server
	ports  []*connectx.Port
	macs   [][6]byte
	blocks []block
	flags  []uint64 // flags of the guest's pages
	gpus   templateGPUs
}

func (a *templateAdapters) serve(dir string, nics []NIC) ([]NIC, error) {
	a.server = connectx.NewServer(connectx.Options{})
	nics = slices.Clone(nics)
	for i := range nics {
		n := &nics[i]
		mac, err := net.ParseMAC(n.MAC)
		if err != nil {
			return nil, err
		}
		n.Adapter = filepath.Join(dir, fmt.Sprintf("x%d.sock", i))
		p, err := a.server.AddNIC(connectx.NIC{Name: adapterID(i), MAC: [6]byte(mac), Socket: n.Adapter, Model: n.Model,
			RateBits: connectx.Rate(n.Model), Link: true, Peer: a.gpus.vram})
		if err != nil {
			return nil, err
		}
		a.ports, a.macs = append(a.ports, p), append(a.macs, [6]byte(mac))
	}
	return nics, nil
}

func (a *templateAdapters) save(ctx context.Context, dir string, q *qapi.Conn) error {
	var named [][]int64
	for i, p := range a.ports {
		names := adapterNames(a.macs[i])
		g := adapterInGuest{Names: make([][]int64, len(names))}
		var err error
		if g.PCI, err = vm.ReadPCIDevice(ctx, q, filepath.Join(dir, vm.SocketTest), adapterID(i)); err != nil {
			return err
		}
		at := int64(0)
		for j, b := range a.blocks {
			if err := findNames(g.Names, filepath.Join(dir, blockFile(j)), at, names); err != nil {
				return err
			}
			at += b.Bytes
		}
		if len(g.Names[0]) == 0 {
			return fmt.Errorf("the guest of the template has not taken adapter %d", i)
		}
		named = append(named, g.Names...)
		state, err := p.Save()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, AdapterState(i)), state, 0o600)
		}
		if err == nil {
			err = atomicfile.WriteJSON(filepath.Join(dir, guestState(i)), g)
		}
		if err != nil {
			return err
		}
	}
	if err := a.gpus.save(ctx, dir, q); err != nil {
		return err
	}
	keepCold(a.blocks, a.flags, named)
	return atomicfile.WriteJSON(filepath.Join(dir, fileBlocks), a.blocks)
}

func (a *templateAdapters) close() {
	if a.server != nil {
		_ = a.server.Close() // its machine has ended
	}
	a.gpus.close() // last: adapters may use the GPUs' memory
}

func readAdapters(dir string, n int) ([]adapterInGuest, error) {
	all := make([]adapterInGuest, n)
	for i := range all {
		err := atomicfile.ReadJSON(filepath.Join(dir, guestState(i)), &all[i])
		if a := all[i]; err == nil && (a.PCI == nil || len(a.Names) != len(adapterNames([6]byte{}))) {
			err = fmt.Errorf("%s is not what was written", guestState(i))
		}
		if err != nil {
			return nil, fmt.Errorf("adapter %d of the template: %w", i, err)
		}
	}
	return all, nil
}

func rename(all []block, files []*os.File, adapters []adapterInGuest, nics []NIC) error {
	for i, a := range adapters {
		mac, err := net.ParseMAC(nics[i].MAC)
		if err != nil {
			return err
		}
		for j, name := range adapterNames([6]byte(mac)) {
			for _, at := range a.Names[j] {
				if err := writeName(all, files, name, at); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
