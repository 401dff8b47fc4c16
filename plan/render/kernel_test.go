package render

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/cmdline"
)

const epycArgs = "iommu=pt isolcpus=managed_irq,domain,2-29,34-61 nohz_full=2-29,34-61 rcu_nocbs=2-29,34-61 " +
	"hugepagesz=1G hugepages=0:16,1:16,2:16,3:16"

func TestTheGRUBSnippetReplacesWhatItSets(t *testing.T) {
	t.Parallel()
	sh := findProgram(t, "sh")
	snippet := cmdline.GRUBSnippet(hostEPYC(t).Plan.KernelArgs)
	tests := []struct {
		name, linux, fallback string
		wantLinux, wantDef    string
	}{
		{"nothing before", "", "", epycArgs, ""},
		{"others stay", "console=ttyS0", "quiet splash", "console=ttyS0 " + epycArgs, "quiet splash"},
		{"other values go", "iommu=on isolcpus=2-5 ro", "quiet nohz_full=1", "ro " + epycArgs, "quiet"},
		{"the same values are not there twice", epycArgs, "", epycArgs, ""},
		{"pages of another size stay with their count", "hugepagesz=2M hugepages=512 hugepagesz=1G hugepages=64", "",
			"hugepagesz=2M hugepages=512 " + epycArgs, ""},
		{"names that only end alike stay", "intel_iommu=on amd_iommu=on default_hugepagesz=1G", "",
			"intel_iommu=on amd_iommu=on default_hugepagesz=1G " + epycArgs, ""},
		{"a pattern is no pattern", "a=* [b]", "", "a=* [b] " + epycArgs, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// grub-mkconfig may read it in two ways.
			script := "set -e\nGRUB_CMDLINE_LINUX=" + words.Quote(tt.linux) + "\nGRUB_CMDLINE_LINUX_DEFAULT=" +
				words.Quote(tt.fallback) + "\n" +
				snippet + snippet + `printf '%s|%s' "$GRUB_CMDLINE_LINUX" "$GRUB_CMDLINE_LINUX_DEFAULT"`
			out, err := exec.Command(sh, "-c", script).CombinedOutput()
			if want := tt.wantLinux + "|" + tt.wantDef; err != nil || string(out) != want {
				t.Errorf("got  %s\nwant %s (%v)", out, want, err)
			}
		})
	}
}

func TestWithoutArgumentsThereAreNoKernelFiles(t *testing.T) {
	t.Parallel()
	in := hostEPYC(t)
	in.Plan.KernelArgs, in.Plan.KernelWhy = nil, nil
	for name, a := range render(t, in) {
		if strings.HasPrefix(name, "kernel/") {
			t.Errorf("%s is there", name)
		}
		if name == "README.md" && (strings.Contains(string(a.Data), "kernel/") ||
			!strings.Contains(string(a.Data), "Nothing here needs a reboot") ||
			!strings.Contains(string(a.Data), "/system.slice/cpuset.cpus.effective   # within 0-1,")) {
			t.Errorf("README without kernel arguments:\n%s", a.Data)
		}
		if name == "commands.txt" && (strings.Contains(string(a.Data), "boot loader of the machine") ||
			!strings.Contains(string(a.Data), "/etc/systemd/system/system.slice.d/")) {
			t.Errorf("commands without kernel arguments:\n%s", a.Data)
		}
	}
}

func TestKernelReleasesAreCompared(t *testing.T) {
	t.Parallel()
	for release, want := range map[string][2]bool{"6.8.0-45-generic": {false, true}, "5.16.0": {false, true},
		"5.15.0": {true, true}, "4.18.0-553.el8": {true, true}, "": {false, false}, "x": {false, false}} {
		if older, known := kernelOlder(release, 5, 16); older != want[0] || known != want[1] {
			t.Errorf("kernelOlder(%q) = %v, %v", release, older, known)
		}
	}
}

func TestTheBootCPUKeepsItsTick(t *testing.T) {
	t.Parallel()
	in := hostEPYC(t)
	in.Plan.KernelArgs[2] = "nohz_full=0-3,32"
	page := string(render(t, in)["README.md"].Data)
	for _, want := range []string{"cat /sys/devices/system/cpu/nohz_full        # 1-3,32\n",
		"takes that one off nohz_full by itself"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}
