package cmdline

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestKeysAreInOrderAndOnce(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff([]string{"iommu", "hugepagesz", "hugepages", "quiet"},
		Keys(strings.Fields("iommu=pt hugepagesz=1G hugepages=1 hugepagesz=2M hugepages=2 quiet"))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestASnippetDoesInAShellWhatEditDoes(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	args := strings.Fields(planArgs)
	script := `GRUB_CMDLINE_LINUX=$1 GRUB_CMDLINE_LINUX_DEFAULT=$2` + "\n" + GRUBSnippet(args) + GRUBSnippet(args) +
		`printf '%s' "$GRUB_CMDLINE_LINUX"; printf '|%s' "$GRUB_CMDLINE_LINUX_DEFAULT"`
	words := rapid.SliceOfN(rapid.SampledFrom([]string{
		"ro", "root=UUID=1-2", "isolcpus=1", "iommu=pt", "iommu=off", "nohz_full=2-29", "nohz_full", "hugepagesz=1G",
		"hugepagesz=2M", "hugepages=4", "hugepages=0:16,1:16", "default_hugepagesz=1G", "*", "[a]", "é",
	}), 0, 8)
	for seed := range 100 {
		linux, fallback := words.Example(2*seed), words.Example(2*seed+1)
		out, err := exec.Command(sh, "-euc", script, "sh", strings.Join(linux, " "),
			strings.Join(fallback, " ")).Output()
		if err != nil {
			t.Fatal(err)
		}
		gotLinux, gotFallback, _ := strings.Cut(string(out), "|")
		clean := func(words []string) []string { return strings.Fields(Strip(strings.Join(words, " "), args)) }
		if want := append(clean(linux), args...); !slices.Equal(strings.Fields(gotLinux), want) {
			t.Errorf("%q became %q; want %q", linux, gotLinux, want)
		}
		if want := clean(fallback); !slices.Equal(strings.Fields(gotFallback), want) {
			t.Errorf("%q became %q; want %q", fallback, gotFallback, want)
		}
	}
}
