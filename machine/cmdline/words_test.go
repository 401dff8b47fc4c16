package cmdline

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var cmdlines = []struct {
	name, line string
	want       [][2]string
}{
	{
		"words with and without a value", "BOOT_IMAGE=/vmlinuz root=UUID=a-b ro  quiet\tnosmt=",
		[][2]string{{"BOOT_IMAGE", "/vmlinuz"}, {"root", "UUID=a-b"}, {"ro", ""}, {"quiet", ""}, {"nosmt", ""}},
	},
	{
		"quotes around a value, a word, and within a value", `dyndbg="file a.c +p" "isolcpus=1 2" x=a" "b`,
		[][2]string{{"dyndbg", "file a.c +p"}, {"isolcpus", "1 2"}, {"x", `a" "b`}},
	},
	{"what is for init", "ro isolcpus=1-3 -- isolcpus=4", [][2]string{{"ro", ""}, {"isolcpus", "1-3"}}},
	{"quotes that stay open", `a="b c`, [][2]string{{"a", "b c"}}},
	{"a value without a name", "=x y", [][2]string{{"", "x"}, {"y", ""}}},
	{"the same twice", "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=8", [][2]string{{"hugepagesz", "1G"},
		{"hugepages", "4"}, {"hugepagesz", "2M"}, {"hugepages", "8"}}},
	{"nothing", " ", nil},
}

func wordsOf(line string) [][2]string {
	var all [][2]string
	for _, word := range Split(line) {
		name, value, _ := Cut(word)
		all = append(all, [2]string{name, value})
	}
	return all
}

func TestWordsOfACommandLine(t *testing.T) {
	t.Parallel()
	for _, test := range cmdlines {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, wordsOf(test.line)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestDashesInNamesAreUnderscores(t *testing.T) {
	t.Parallel()
	if got := Key("vfio-pci.ids"); got != "vfio_pci.ids" {
		t.Errorf("Key says %q; want vfio_pci.ids", got)
	}
}

func TestWhiteSpaceStaysWhereWordsAreReplaced(t *testing.T) {
	t.Parallel()
	got := Map(" ro  a=\"b c\"\t-- x\n", func(word string) string { return "<" + word + ">" })
	if want := " <ro>  <a=\"b c\">\t<--> <x>\n"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}

func FuzzWords(f *testing.F) {
	for _, test := range cmdlines {
		f.Add(test.line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		for _, w := range wordsOf(line) {
			if !strings.Contains(line, w[0]) || !strings.Contains(line, w[1]) {
				t.Errorf("%q has no parameter %q", line, w)
			}
		}
		if same := Map(line, func(word string) string { return word }); same != line {
			t.Errorf("%q became %q", line, same)
		}
	})
}
