package render

import (
	"os"
	"os/exec"
	"strings"
	"testing"
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
			script := "set -e\nGRUB_CMDLINE_LINUX=" + shellQuote(tt.linux) + "\nGRUB_CMDLINE_LINUX_DEFAULT=" +
				shellQuote(tt.fallback) + "\n" +
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

// fakeGrubby keeps the command lines of two boot entries in a file.
const fakeGrubby = `for a; do
    case $a in
    --info=ALL) sed 's/.*/index=0\nargs="&"\nroot=x/' "$RACKLESS_ROOT/entries"; exit ;;
    --remove-args=*) gone=${a#*=} ;;
    --args=*) new=${a#*=} ;;
    esac
done
while read -r line; do
    out=
    for w in $line; do
        drop=
        for g in $gone; do [ "$g" != "$w" ] || drop=1; done
        for n in $new; do [ "${n%%=*}" != "${w%%=*}" ] || drop=1; done
        [ -n "$drop" ] || out="$out $w"
    done
    echo "${out# }${new:+ }$new"
done <"$RACKLESS_ROOT/entries" >"$RACKLESS_ROOT/entries.new"
mv "$RACKLESS_ROOT/entries.new" "$RACKLESS_ROOT/entries"`

func TestGrubbyIsSetAndSetBack(t *testing.T) {
	t.Parallel()
	r := newFakeRoot(t)
	r.program("grubby", fakeGrubby)
	r.program("grub2-editenv", "exit 0")
	r.write("entries", "root=/dev/sda1 isolcpus=1 ro\nroot=/dev/sda1 rescue isolcpus=1")
	script := hostScript(t, hostEPYC(t), "kernel/grubby.sh")
	for range 2 {
		r.mustRun(script, "apply")
		r.want(map[string]string{"entries": "root=/dev/sda1 ro " + epycArgs + "\nroot=/dev/sda1 rescue " + epycArgs})
	}
	r.mustRun(script, "undo")
	r.want(map[string]string{"entries": "root=/dev/sda1 ro isolcpus=1\nroot=/dev/sda1 rescue isolcpus=1"})
}

func TestGrubbyThatGetsItWrongIsNoticed(t *testing.T) {
	t.Parallel()
	r := newFakeRoot(t)
	// As early versions: iommu= is found inside of amd_iommu=.
	r.program("grubby", `case $* in *--info*) echo 'args="ro amd_iommu=pt"' ;; esac`)
	r.program("grub2-editenv", "exit 0")
	r.mustFail(hostScript(t, hostEPYC(t), "kernel/grubby.sh"), "an entry did not take iommu=pt", "apply")
}

func TestGrubbyRefusesWhatWouldNotFit(t *testing.T) {
	t.Parallel()
	r := newFakeRoot(t)
	r.program("grubby", fakeGrubby)
	r.program("grub2-editenv", `echo "kernelopts=ro $(printf 'x%.0s' $(seq 800))"`)
	r.write("entries", "$kernelopts")
	script := hostScript(t, hostEPYC(t), "kernel/grubby.sh")
	r.mustFail(script, "environment block (1024 bytes) would overflow", "apply")
	r.program("grub2-editenv", "exit 0")
	r.write("entries", "ro "+strings.Repeat("x", 2000))
	r.mustFail(script, "and the kernel reads 2047", "apply")
	r.write("entries", "ro hugepagesz=2M hugepages=512")
	r.mustFail(script, "hugepages of another size too", "apply")
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

func TestSystemdBootIsSetAndSetBack(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"root=/dev/sda2 quiet hugepages=64", ""} {
		r := newFakeRoot(t)
		r.program("kernel-install", `echo "kernel-install $*" >>"$RACKLESS_ROOT/log"`)
		r.write("usr/lib/modules/6.8.0/vmlinuz", "")
		r.write("usr/lib/modules/6.1.0/modules.dep", "")
		r.write("boot/vmlinuz-6.1.0", "")
		r.write("boot/vmlinuz-5.0-without-modules", "")
		r.write("proc/cmdline", "BOOT_IMAGE=/x initrd=\\y root=/dev/sda2 rw isolcpus=1")
		want := "root=/dev/sda2 rw " + epycArgs
		if before != "" {
			r.write("etc/kernel/cmdline", before)
			want = "root=/dev/sda2 quiet " + epycArgs
		}
		script := hostScript(t, hostEPYC(t), "kernel/systemd-boot.sh")
		for range 2 {
			r.mustRun(script, "apply")
			r.want(map[string]string{"etc/kernel/cmdline": want})
		}
		for _, call := range []string{"kernel-install add 6.8.0 " + r.path("usr/lib/modules/6.8.0/vmlinuz"),
			"kernel-install add 6.1.0 " + r.path("boot/vmlinuz-6.1.0")} {
			if !strings.Contains(r.read("log"), call) {
				t.Errorf("no %q in\n%s", call, r.read("log"))
			}
		}
		if strings.Contains(r.read("log"), "5.0-without") {
			t.Error("an entry for a kernel without modules")
		}
		r.mustRun(script, "undo")
		r.want(map[string]string{"etc/kernel/cmdline": before})
		r.mustFail(script, "nothing to undo", "undo")
	}
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
