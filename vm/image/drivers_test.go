package image

import (
	"compress/gzip"
	"io"
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
