package hostview

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

func TestAGroupFitsATerminal(t *testing.T) {
	kernel := topology.Kernel{Release: "4.18.0-147.el8.x86_64"}
	host := func(product string) *Document {
		return &Document{System: topology.System{Product: product}, Host: &topology.Host{Kernel: kernel}}
	}
	const long = "Rack Server 7000 of the second generation"
	g := NewGroup([]string{"a.ttar", "b.ttar", "c.ttar"}, []*Document{host(long), host("Small"), host(long)})
	g.Typical = ""
	for width, want := range map[int]string{
		0: "HOST    MACHINE                                    CPUS  NUMA  MEMORY  GPUS  NICS  KERNEL            " +
			"     FINDINGS\n" +
			"a.ttar  Rack Server 7000 of the second generation     0     0       -     0     0  4.18.0-147.el8.x86" +
			"_64  none\n",
		80: "HOST    CPUS  NUMA  MEMORY  GPUS  NICS  FINDINGS\n" +
			"a.ttar     0     0       -     0     0  none\n" +
			"b.ttar     0     0       -     0     0  none\n" +
			"c.ttar     0     0       -     0     0  none\n" +
			"\nMachines\n" +
			"  Rack Server 7000 of the second generation, kernel 4.18.0-147.el8.x86_64\n" +
			"    a.ttar and c.ttar (2 of 3)\n" +
			"  Small, kernel 4.18.0-147.el8.x86_64\n" +
			"    b.ttar (1 of 3)\n",
	} {
		var b strings.Builder
		if err := g.WriteTable(&b, TableOptions{Width: width}); err != nil {
			t.Fatal(err)
		}
		got := b.String()
		if width == 0 { // the rows of the others say no more
			got = strings.Join(strings.SplitAfterN(got, "\n", 3)[:2], "")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d columns (-want +got):\n%s", width, diff)
		}
	}
}
