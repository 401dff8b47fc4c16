package qemu

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/connectx"
	"github.com/rackless/rackless/vm"
)

// A clone's memory has the names of its own adapters wherever the template's has those of its own, and nothing else
// differs.
func TestClonesHaveNamesOfTheirOwn(t *testing.T) {
	memory := func(mac [6]byte) []byte {
		b := bytes.Repeat([]byte{0x52, 0x54, 0}, 30000)
		guid := connectx.GUID(mac)
		copy(b[4096:], guid[:])
		copy(b[50001:], guid[:])
		binary.LittleEndian.PutUint64(b[60000:], binary.BigEndian.Uint64(guid[:]))
		device := b[70000:70034] // perm_addr[32], addr_assign_type, addr_len of struct net_device
		clear(device)
		copy(device, mac[:])
		device[33] = 6
		copy(b[80000:], []byte{0x52, 0x54, 0, 0, 0, 1, 9}) // the address that a clone changes by itself
		return b
	}
	dir := t.TempDir()
	path := filepath.Join(dir, fileRAM)
	if err := os.WriteFile(path, memory([6]byte{0x52, 0x54, 0, 0, 0, 1}), 0o600); err != nil {
		t.Fatal(err)
	}
	places, err := findNames(path, adapterNames([6]byte{0x52, 0x54, 0, 0, 0, 1}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]int64{{4096, 50001}, {60000}, {70000}}, places); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := rename(f, []adapterInGuest{{Names: places}}, []NIC{{MAC: "52:54:00:99:d6:bb"}}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, memory([6]byte{0x52, 0x54, 0, 0x99, 0xd6, 0xbb})) {
		t.Errorf("the clone's memory is another, %v", err)
	}
	if err := rename(f, []adapterInGuest{{Names: places}}, []NIC{{MAC: "none"}}); err == nil {
		t.Error("a MAC that is none")
	}
}

// A template whose adapters cannot be read makes no node.
func TestTemplateWithoutItsAdapters(t *testing.T) {
	dir := t.TempDir()
	d := &Driver{}
	s := Spec{Memory: 4096, NICs: []NIC{{MAC: "52:54:00:00:00:07"}}, Adapters: true,
		Restore: func(context.Context, string) error { return nil }}
	for name, content := range map[string]string{"": "adapter 0 of the template: open ", "{": "adapter 0 of the template: "} {
		if name != "" {
			if err := os.WriteFile(filepath.Join(dir, guestState(0)), []byte(name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, fileRAM), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := d.shareMemory(s, &vm.Template{Dir: dir}, filepath.Join(dir, fileRAM))
		if err == nil || !strings.HasPrefix(err.Error(), content) {
			t.Errorf("%q: got %v, want %s", name, err, content)
		}
		_ = os.Remove(filepath.Join(dir, guestState(0)))
	}
}
