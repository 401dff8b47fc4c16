package cmdline

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIsolatedCPUsOfAnArgument(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"isolcpus=2-5": "2-5", "isolcpus=managed_irq,domain,2-5,8": "2-5,8", "isolcpus=nohz,1": "1", "isolcpus=": "",
		"isolcpus=domain": "", "isolcpus=domain,": "", "nohz_full=2": "",
	} {
		set, ok := Isolcpus(arg)
		if ok != (want != "") || set.String() != want {
			t.Errorf("Isolcpus(%q) = %s, %v", arg, set, ok)
		}
	}
}

func TestArgumentsThatNoLoaderCouldCarryAreRefused(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, arg, want string }{
		{"a space", "iommu=pt init=/bin/sh", `kernel_args[0] is "iommu=pt init=/bin/sh": want a name`},
		{"a quote", `a="b`, "want a name"},
		{"a command", "a=$(reboot)", "want a name"},
		{"nothing", "", "want a name"},
		{"a dash", "--", "want a name"},
		{"no value", "hugepages=", "without a value"},
		{"no CPUs", "isolcpus=domain", "without CPUs"},
		{"no list", "nohz_full=x", "want a list of CPUs"},
		{"too long", "x=" + strings.Repeat("1", 2047), "have 2049 characters, and the kernel reads 2047"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := Check([]string{tt.arg}, Limit("x86_64")); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v; want %q", err, tt.want)
			}
		})
	}
	if err := Check(strings.Fields(planArgs), Limit("riscv64")); err != nil {
		t.Error(err)
	}
	if got := []int{Limit("amd64"), Limit("aarch64"), Limit("s390x"), Limit("riscv64")}; !cmp.Equal(got,
		[]int{2048, 2048, 4096, 1024}) {
		t.Errorf("limits are %d", got)
	}
}

func TestCPUsWithoutTick(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{"nohz_full=1-3,8": "1-3,8", "nohz_full=x": "", "isolcpus=1": ""} {
		if set, ok := NohzFull(arg); ok != (want != "") || set.String() != want {
			t.Errorf("NohzFull(%q) = %s, %v", arg, set, ok)
		}
	}
}
