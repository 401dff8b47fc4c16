package guest

import (
	"compress/gzip"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDriversComeWithWhatTheyNeedAndTheirAliases(t *testing.T) {
	mod := func(records ...string) string {
		return string(elfFile(t, "", nil, strings.Join(records, "\x00")+"\x00"))
	}
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{
		"modules.builtin":   "kernel/mdio.ko\n",
		"kernel/dca.ko":     mod("depends="),
		"kernel/ib_core.ko": mod("depends="),
		"kernel/igb.ko": mod("alias=pci:v00008086d000010C9sv*sd*bc*sc*i*", "depends=dca",
			"alias=pci:v00008086d00001521sv*sd*bc*sc*i*", "alias=pci:a b", "alias=net-pf-17"),
		"kernel/mlx4_core.ko":   mod("alias=pci:v000015B3d00001003sv*", "depends="),
		"kernel/mlx4-en.ko.gz":  string(gzipped(t, []byte(mod("depends=mlx4_core")))),
		"kernel/mlx5_core.ko":   mod("alias=pci:v000015B3d00001017sv*", "depends="),
		"kernel/mlx5_ib.ko":     mod("alias=auxiliary:mlx5_core.rdma", "depends=mlx5_core,ib_core"),
		"kernel/no_aliases.ko":  mod("depends="),
		"kernel/mdio-extra.txt": "not a module",
	})
	set, err := readModules(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := set.drivers([]string{"igb", "mlx4_core", "mlx5_core", "mlx5_ib", "no_aliases", "not-of-this-kernel"},
		[]module{{Name: "ib_core"}})
	if err != nil {
		t.Fatal(err)
	}
	want := `pci:v00008086d000010C9sv*sd*bc*sc*i* dca igb
pci:v00008086d00001521sv*sd*bc*sc*i* dca igb
pci:v000015B3d00001003sv* mlx4_core mlx4_en
pci:v000015B3d00001017sv* mlx5_core
auxiliary:mlx5_core.rdma mlx5_core mlx5_ib
`
	if diff := cmp.Diff(want, got.table()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	// ib_core is loaded anyway, and what two need is there once.
	if diff := cmp.Diff([]string{"-dca", "-igb", "-mlx4_core", "-mlx4_en", "-mlx5_core", "-mlx5_ib", "-no_aliases"},
		names(got.modules)); diff != "" {
		t.Errorf("modules (-want +got):\n%s", diff)
	}
}

func TestPackedModulesUnpack(t *testing.T) {
	data := strings.Repeat("ELF ", 1000)
	packed, err := pack([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(strings.NewReader(string(packed)))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != data {
		t.Errorf("%d bytes, %v, want %d", len(got), err, len(data))
	}
	if again, err := pack([]byte(data)); err != nil || string(again) != string(packed) {
		t.Errorf("the same module is packed to other bytes, %v", err)
	}
}

func TestIdentityInWords(t *testing.T) {
	addr := netip.MustParsePrefix("10.0.0.1/24")
	id := Identity{Name: "vm00", MachineID: "0123456789abcdef0123456789abcdef", MTU: 4200, NICs: []NIC{
		{Device: "eth0", MAC: "52:54:00:00:00:01", Addr: addr},
		{Device: "eth1", Path: "pci0000:20/0000:20:00.0/0000:*:00.0", Addr: addr},
		{Device: "eth2", Path: "pci0000:00/0000:00:02.0/0000:*:00.0", MAC: "52:54:00:00:00:03", Addr: addr},
	}}
	w := id.words()
	if got := strings.Join(w[:3], " "); got != "configure vm00 0123456789abcdef0123456789abcdef" {
		t.Errorf("got %s", got)
	}
	want := []string{
		"4200", "eth0", "52:54:00:00:00:01", "10.0.0.1/24",
		"eth1@pci0000:20/0000:20:00.0/0000:*:00.0", "-", "10.0.0.1/24",
		"eth2@pci0000:00/0000:00:02.0/0000:*:00.0", "52:54:00:00:00:03", "10.0.0.1/24",
	}
	if diff := cmp.Diff(want, w[5:]); diff != "" { // after clock and seed
		t.Errorf("-want +got:\n%s", diff)
	}
}
