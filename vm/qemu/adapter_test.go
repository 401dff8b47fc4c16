package qemu

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/rdma/connectx"
	"github.com/rackless/rackless/vm"
)

func TestClonesHaveNamesOfTheirOwn(t *testing.T) {
	memory := func(mac [6]byte) []byte {
		b := bytes.Repeat([]byte{0x52, 0x54, 0}, 30000)
		guid := connectx.GUID(mac)
		copy(b[4096:], guid[:])
		copy(b[50001:], guid[:])
		binary.LittleEndian.PutUint64(b[60000:], binary.BigEndian.Uint64(guid[:]))
		device := b[70000:70034] // perm_addr[32], addr_assign_type, addr_len of net_device
		clear(device)
		copy(device, mac[:])
		device[33] = 6
		copy(b[80000:], []byte{0x52, 0x54, 0, 0, 0, 1, 9}) // changed by the clone itself
		return b
	}
	path := filepath.Join(t.TempDir(), "ram")
	old := [6]byte{0x52, 0x54, 0, 0, 0, 1}
	if err := os.WriteFile(path, memory(old), 0o600); err != nil {
		t.Fatal(err)
	}
	places := make([][]int64, 3)
	const from = 1 << 20
	if err := findNames(places, path, from, adapterNames(old)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]int64{{from + 4096, from + 50001}, {from + 60000}, {from + 70000}}, places); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := []block{{Bytes: from}, {Bytes: from, Shared: true}, {Bytes: from}}
	adapters := []adapterInGuest{{Names: places}}
	if err := rename(all, []*os.File{f}, adapters, []NIC{{MAC: "52:54:00:99:d6:bb"}}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, memory([6]byte{0x52, 0x54, 0, 0x99, 0xd6, 0xbb})) {
		t.Errorf("the clone's memory is another, %v", err)
	}
	if err := rename(all, []*os.File{f}, adapters, []NIC{{MAC: "none"}}); err == nil {
		t.Error("a MAC that is none")
	}
	for _, at := range []int64{0, 2 * from, 3 * from, 4 * from} {
		if err := writeName(all, []*os.File{f}, nil, at); err == nil {
			t.Errorf("a name at %#x, which is not shared", at)
		}
	}
}

func TestTemplateWithoutItsAdapters(t *testing.T) {
	dir := t.TempDir()
	files := []string{guestState(0), fileBlocks, blockFile(0)}
	contents := []string{`{"PCI": {}, "Names": [[], [], []]}`, `[{"bytes": 4096, "shared": true}]`, "contents"}
	spec := Spec{Memory: 4096, NICs: []NIC{{MAC: "52:54:00:00:00:07"}}, Adapters: true}
	for i := range len(files) + 1 {
		m := machine{spec: spec}
		memory, _, err := (&Driver{}).shareMemory(&m, &vm.Template{Dir: dir})
		if i == len(files) {
			if err != nil || len(memory) != 1 || len(m.blocks) != 1 ||
				m.blocks[0].path != spec.sockets().SharedMemory(0) {
				t.Errorf("complete: %v, files %v, blocks %v", err, memory, m.blocks)
			}
			closeAll(memory)
			return
		}
		if err == nil || !strings.Contains(err.Error(), files[i]) {
			t.Errorf("without %s: %v", files[i], err)
		}
		if err := os.WriteFile(filepath.Join(dir, files[i]), []byte(contents[i]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
