package render

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rackless/rackless/internal/words"
)

const epycArgs = "iommu=pt isolcpus=managed_irq,domain,2-29,34-61 nohz_full=2-29,34-61 rcu_nocbs=2-29,34-61 " +
	"hugepagesz=1G hugepages=0:16,1:16,2:16,3:16"

func TestTheGRUBSnippetReplacesWhatItSets(t *testing.T) {
	t.Parallel()
	sh := findProgram(t, "sh")
	snippet := string(render(t, hostEPYC(t))["kernel/grub.cfg"].Data)
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
			// Twice: grub-mkconfig may read it by two ways.
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

func TestGRUBIsSetAndSetBack(t *testing.T) {
	t.Parallel()
	for _, snippets := range []bool{true, false} {
		in := hostEPYC(t)
		all := render(t, in)
		r := newFakeRoot(t)
		name := "grub2-mkconfig"
		if snippets {
			name = "grub-mkconfig"
			r.program("update-grub", `echo update-grub >>"$RACKLESS_ROOT/log"`)
		}
		body := `echo "` + name + ` $*" >>"$RACKLESS_ROOT/log"`
		if snippets {
			body += "\n# reads ${sysconfdir}/default/grub.d/*.cfg"
		}
		r.program(name, body)
		const defaults = "GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX=\"quiet\""
		r.write("etc/default/grub", defaults)
		r.write("proc/cmdline", "root=/dev/sda1 isolcpus=1")
		r.write("opt/grub.cfg", strings.TrimSuffix(string(all["kernel/grub.cfg"].Data), "\n"))
		script := all["kernel/grub.sh"].Data
		for range 2 {
			r.mustRun(script, "apply")
		}
		if got := r.read("etc/default/grub.d/rackless-epyc-pair.cfg"); got+"\n" != string(all["kernel/grub.cfg"].Data) {
			t.Errorf("the snippet is\n%s", got)
		}
		want := defaults
		if !snippets {
			want += "\n. /etc/default/grub.d/rackless-epyc-pair.cfg # rackless"
		}
		r.want(map[string]string{"etc/default/grub": want})
		r.mustRun(script, "undo")
		r.want(map[string]string{"etc/default/grub": defaults, "etc/default/grub.d/rackless-epyc-pair.cfg": ""})
		if log := r.read("log"); snippets && !strings.Contains(log, "update-grub") || !snippets &&
			!strings.Contains(log, "grub2-mkconfig -o "+r.path("boot/grub2/grub.cfg")) {
			t.Errorf("the boot loader's file was not made again:\n%s", log)
		}
	}
}

// entry is a boot entry of a kernel with a command line.
func entry(line string) string {
	return "title Linux\nlinux /vmlinuz\noptions " + line
}

const entryDir = "boot/loader/entries/"

func TestBootEntriesAreSetAndSetBack(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"kernel/grubby.sh", "kernel/systemd-boot.sh"} {
		r := newFakeRoot(t)
		before := map[string]string{
			entryDir + "a.conf":              entry("root=/dev/sda1 isolcpus=1 ro"),
			entryDir + "b.conf":              entry("root=/dev/sda1 rescue isolcpus=1 hugepagesz=2M hugepages=512"),
			entryDir + "c.conf":              "title another system\nefi /x.efi",
			entryDir + "d.conf":              "machine-id 77\n" + entry("root=/dev/sdb1"),
			"efi/" + entryDir[5:] + "e.conf": entry("ro iommu=pt"),
			"etc/kernel/cmdline":             "# for new kernels\nroot=/dev/sda1 quiet",
			"etc/machine-id":                 "42",
		}
		for file, text := range before {
			r.write(file, text)
		}
		script := hostScript(t, hostEPYC(t), name)
		for range 2 {
			r.mustRun(script, "apply")
			r.want(map[string]string{
				entryDir + "a.conf":  entry("root=/dev/sda1 ro " + epycArgs),
				entryDir + "b.conf":  entry("root=/dev/sda1 rescue hugepagesz=2M hugepages=512 " + epycArgs),
				entryDir + "c.conf":  before[entryDir+"c.conf"],
				entryDir + "d.conf":  before[entryDir+"d.conf"],
				"etc/kernel/cmdline": "# for new kernels\nroot=/dev/sda1 quiet " + epycArgs,
			})
		}
		r.write(entryDir+"a.conf", entry("root=/dev/sda1 ro "+epycArgs+" debug"))
		r.write(entryDir+"new.conf", entry("root=/dev/sda1 ro "+epycArgs))
		r.mustRun(script, "undo")
		before[entryDir+"a.conf"] = entry("root=/dev/sda1 ro debug isolcpus=1")
		before[entryDir+"new.conf"] = entry("root=/dev/sda1 ro isolcpus=1")
		r.want(before)
		r.mustFail(script, "nothing to undo", "undo")
	}
}

func TestEntriesThatReferToGRUBsEnvironment(t *testing.T) {
	t.Parallel()
	r := newFakeRoot(t)
	r.program("grub2-editenv", `case $2 in
list) sed 's/^/kernelopts=/' "$RACKLESS_ROOT/env" ;;
set) printf '%s\n' "${3#kernelopts=}" >"$RACKLESS_ROOT/env" ;;
esac`)
	r.write("env", "root=/dev/sda1 iommu=off")
	r.write(entryDir+"a.conf", entry("$kernelopts isolcpus=1"))
	script := hostScript(t, hostEPYC(t), "kernel/grubby.sh")
	for range 2 {
		r.mustRun(script, "apply")
		r.want(map[string]string{"env": "root=/dev/sda1 " + epycArgs, entryDir + "a.conf": entry("$kernelopts")})
	}
	r.mustRun(script, "undo")
	r.want(map[string]string{"env": "root=/dev/sda1 iommu=off", entryDir + "a.conf": entry("$kernelopts isolcpus=1")})
	r.write("env", "ro "+strings.Repeat("x", 800))
	r.mustFail(script, "environment block (1024 bytes) would overflow", "apply")
}

func TestEntriesRefuseWhatWouldNotFit(t *testing.T) {
	t.Parallel()
	r := newFakeRoot(t)
	script := hostScript(t, hostEPYC(t), "kernel/grubby.sh")
	r.mustFail(script, "no boot entries in loader/entries", "apply")
	r.write(entryDir+"a.conf", entry("ro"))
	long := entry("ro " + strings.Repeat("x", 2000))
	r.write(entryDir+"b.conf", long)
	r.mustFail(script, "and the kernel reads 2047", "apply")
	r.want(map[string]string{entryDir + "a.conf": entry("ro"), entryDir + "b.conf": long})
}

func TestKernelstubIsAskedWhereItIs(t *testing.T) {
	t.Parallel()
	r := newFakeRoot(t)
	r.program("kernelstub", `echo "$*" >>"$RACKLESS_ROOT/log"`)
	r.write("proc/cmdline", "root=/dev/sda2 isolcpus=1")
	script := hostScript(t, hostEPYC(t), "kernel/systemd-boot.sh")
	r.mustRun(script, "apply")
	r.mustRun(script, "undo")
	r.want(map[string]string{"log": "--delete-options isolcpus=1\n--add-options " + epycArgs + "\n--delete-options " +
		epycArgs + "\n--add-options isolcpus=1"})
}

func TestRPMOSTreeMakesOneDeployment(t *testing.T) {
	t.Parallel()
	r := newFakeRoot(t)
	r.program("rpm-ostree", `[ $# = 1 ] && { echo "root=UUID=1 ostree=/x isolcpus=1 nohz_full=2-29,34-61"; exit; }
echo "$*" >>"$RACKLESS_ROOT/log"`)
	script := hostScript(t, hostEPYC(t), "kernel/rpm-ostree.sh")
	r.mustRun(script, "apply")
	appended, deleted := "", ""
	for w := range strings.FieldsSeq(epycArgs) {
		appended += " --append-if-missing=" + w
		deleted += " --delete-if-present=" + w
	}
	r.want(map[string]string{"log": "kargs --delete-if-present=isolcpus=1" + appended})
	if err := os.Remove(r.path("log")); err != nil {
		t.Fatal(err)
	}
	r.mustRun(script, "undo")
	r.want(map[string]string{"log": "kargs" + deleted + " --append-if-missing=isolcpus=1"})
}

func TestShowSaysWhatIsInForce(t *testing.T) {
	t.Parallel()
	r := newFakeRoot(t)
	script := hostScript(t, hostEPYC(t), "kernel/grub.sh")
	r.write("proc/cmdline", "ro iommu=pt isolcpus=2-29")
	out, err := r.run(script, "show")
	if err == nil || !strings.Contains(out, "in force  iommu=pt\n") ||
		!strings.Contains(out, "missing   nohz_full=2-29,34-61\n") {
		t.Errorf("%v\n%s", err, out)
	}
	r.write("proc/cmdline", "ro "+epycArgs)
	r.mustRun(script, "show")
}

func TestWithoutArgumentsThereAreNoKernelFiles(t *testing.T) {
	t.Parallel()
	in := hostEPYC(t)
	in.Plan.KernelArgs, in.Plan.KernelWhy = nil, nil
	for name, a := range render(t, in) {
		if strings.HasPrefix(name, "kernel/") {
			t.Errorf("%s is there", name)
		}
		if name == "README.md" && (strings.Contains(string(a.Data), "kernel/") || !strings.Contains(string(a.Data),
			"Nothing here needs a reboot") ||
			!strings.Contains(string(a.Data), "rackless-epyc-pair-cpuset.service")) {
			t.Errorf("README without kernel arguments:\n%s", a.Data)
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
