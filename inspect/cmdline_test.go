package inspect

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var cmdlines = []struct {
	name, line string
	want       []kernelArg
}{
	{
		"words with and without a value", "BOOT_IMAGE=/vmlinuz root=UUID=a-b ro  quiet\tnosmt=",
		[]kernelArg{{"BOOT_IMAGE", "/vmlinuz"}, {"root", "UUID=a-b"}, {"ro", ""}, {"quiet", ""}, {"nosmt", ""}},
	},
	{
		"quotes around a value, a word, and within a value", `dyndbg="file a.c +p" "isolcpus=1 2" x=a" "b`,
		[]kernelArg{{"dyndbg", "file a.c +p"}, {"isolcpus", "1 2"}, {"x", `a" "b`}},
	},
	{"what is for init", "ro isolcpus=1-3 -- isolcpus=4", []kernelArg{{"ro", ""}, {"isolcpus", "1-3"}}},
	{"quotes that stay open", `a="b c`, []kernelArg{{"a", "b c"}}},
	{"a value without a name", "=x y", []kernelArg{{"y", ""}}},
	{"the same twice", "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=8", []kernelArg{{"hugepagesz", "1G"},
		{"hugepages", "4"}, {"hugepagesz", "2M"}, {"hugepages", "8"}}},
	{"nothing", " ", nil},
}

func TestParseCmdline(t *testing.T) {
	t.Parallel()
	for _, test := range cmdlines {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, parseCmdline(test.line), cmp.AllowUnexported(kernelArg{})); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestDashesInNamesAreUnderscores(t *testing.T) {
	t.Parallel()
	if got := (kernelArg{name: "vfio-pci.ids"}).key(); got != "vfio_pci.ids" {
		t.Errorf("key() = %q; want vfio_pci.ids", got)
	}
}

func FuzzParseCmdline(f *testing.F) {
	for _, test := range cmdlines {
		f.Add(test.line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		for _, a := range parseCmdline(line) {
			if a.name == "" || !strings.Contains(line, a.name) || !strings.Contains(line, a.value) {
				t.Errorf("%q has no parameter %+v", line, a)
			}
		}
	})
}
