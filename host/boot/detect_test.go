package boot

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host/change"
)

const staticMenu = "menuentry 'a' { linux /vmlinuz ro ; }\n"

func TestTheBootLoaderIsFound(t *testing.T) {
	t.Parallel()
	const (
		debianMkconfig = "${sysconfdir}/default/grub.d/*.cfg"
		entry          = "title a\nlinux /a\noptions ro\n"
	)
	tests := []struct {
		name  string
		files map[string]string
		efi   map[string]string
		want  string
	}{
		{"Debian", map[string]string{"/boot/grub/grub.cfg": staticMenu, "/usr/sbin/grub-mkconfig": debianMkconfig,
			"/boot/efi/EFI/debian/grub.cfg": "configfile $prefix/grub.cfg"}, nil,
			"by GRUB: /etc/default/grub.d/rackless.cfg, and /boot/grub/grub.cfg made again"},
		{"Arch with GRUB", map[string]string{"/boot/grub/grub.cfg": staticMenu, "/usr/bin/grub-mkconfig": "",
			"/etc/default/grub": ""}, nil,
			"by GRUB: /etc/default/grub, and /boot/grub/grub.cfg made again"},
		{"SUSE", map[string]string{"/boot/grub2/grub.cfg": staticMenu, "/usr/sbin/grub2-mkconfig": "",
			"/etc/default/grub": ""}, nil,
			"by GRUB: /etc/default/grub, and /boot/grub2/grub.cfg made again"},
		{"Fedora without boot entries", map[string]string{"/boot/grub2/grub.cfg": "blscfg\n"}, nil,
			"by hand: GRUB, and no entries in /boot/loader/entries"},
		{"Fedora", map[string]string{"/boot/grub2/grub.cfg": "blscfg\n", "/boot/loader/entries/a.conf": entry}, nil,
			"in the boot entries of /boot/loader/entries"},
		{"RHEL on EFI", map[string]string{"/boot/efi/EFI/redhat/grub.cfg": "blscfg\n",
			"/boot/loader/entries/a.conf": entry}, nil, "in the boot entries of /boot/loader/entries"},
		{"systemd-boot, with GRUB beside it", map[string]string{"/boot/grub/grub.cfg": staticMenu,
			"/usr/sbin/grub-mkconfig": debianMkconfig, "/efi/loader/entries/a.conf": entry},
			map[string]string{"LoaderInfo": "systemd-boot 252"}, "in the boot entries of /efi/loader/entries"},
		{"GRUB, with systemd-boot beside it", map[string]string{"/boot/grub/grub.cfg": staticMenu,
			"/usr/sbin/grub-mkconfig": debianMkconfig, "/efi/loader/entries/a.conf": entry},
			map[string]string{"LoaderInfo": "GRUB 2.12"}, "by GRUB"},
		{"GRUB that says nothing, with systemd-boot beside it", map[string]string{"/boot/grub/grub.cfg": staticMenu,
			"/usr/sbin/grub-mkconfig": debianMkconfig, "/efi/loader/entries/a.conf": entry,
			"/sys/firmware/efi/efivars/BootCurrent-" + globalVariables: "\x06\x00\x00\x00\x01\x00"}, nil, "by GRUB"},
		{"either of two, and no word of the firmware", map[string]string{"/boot/grub/grub.cfg": staticMenu,
			"/efi/loader/entries/a.conf": entry, "/sys/firmware/efi/fw_platform_size": "64"}, nil,
			"by hand: GRUB in /boot/grub/grub.cfg and boot entries in /efi/loader/entries, and the firmware's " +
				"variables cannot be read"},
		{"systemd-boot without entries", nil, map[string]string{"LoaderInfo": "systemd-boot 252"},
			"by hand: systemd-boot 252, and no entries"},
		{"a unified kernel image", map[string]string{"/efi/loader/entries/a.conf": entry},
			map[string]string{"LoaderInfo": "systemd-boot 252", "StubInfo": "systemd-stub 252"},
			"by hand: a unified kernel image, with the command line in it"},
		{"a unified kernel image of another stub", nil, map[string]string{"LoaderInfo": "systemd-boot 252",
			"LoaderEntrySelected": "arch-linux.efi"}, "by hand: a unified kernel image"},
		{"another boot loader of EFI", map[string]string{"/boot/grub/grub.cfg": staticMenu},
			map[string]string{"LoaderInfo": "Limine 7"}, "by hand: Limine 7"},
		{"two menus", map[string]string{"/boot/grub/grub.cfg": staticMenu, "/boot/efi/EFI/x/grub.cfg": staticMenu}, nil,
			"by hand: more than one menu of GRUB: /boot/grub/grub.cfg, /boot/efi/EFI/x/grub.cfg"},
		{"GRUB without its program", map[string]string{"/boot/grub/grub.cfg": staticMenu}, nil,
			"by hand: GRUB without grub-mkconfig"},
		{"GRUB without settings", map[string]string{"/boot/grub/grub.cfg": staticMenu, "/usr/bin/grub-mkconfig": ""},
			nil, "by hand: GRUB without /etc/default/grub"},
		{"rpm-ostree", map[string]string{"/run/ostree-booted": "", "/usr/bin/rpm-ostree": "",
			"/boot/grub2/grub.cfg": "blscfg"}, nil, "by rpm-ostree, in a new deployment"},
		{"OSTree alone", map[string]string{"/run/ostree-booted": ""}, nil,
			"by hand: an OSTree system without rpm-ostree"},
		{"Proxmox", map[string]string{"/usr/sbin/proxmox-boot-tool": "", "/etc/kernel/proxmox-boot-uuids": "A-B",
			"/boot/grub/grub.cfg": staticMenu}, nil, "by hand: boot partitions that proxmox-boot-tool writes"},
		{"Pop!_OS", map[string]string{"/usr/bin/kernelstub": "", "/etc/kernelstub/configuration": "{}"},
			map[string]string{"LoaderInfo": "systemd-boot 252"}, "by hand: kernelstub"},
		{"extlinux", map[string]string{"/boot/extlinux/extlinux.conf": ""}, nil,
			"by hand: /boot/extlinux/extlinux.conf"},
		{"nothing", nil, nil, "by hand: no boot loader that is known"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, tt.files)
			m.write("/proc/cmdline", "ro\n")
			for name, text := range tt.efi {
				m.efi(name, text)
			}
			step := m.steps()[0]
			if want := "give the kernel 5 arguments, " + tt.want; !strings.HasPrefix(step.What, want) {
				t.Errorf("got  %s\nwant %s", step.What, want)
			}
			data, err := json.Marshal(step.Op)
			if err != nil {
				t.Fatal(err)
			}
			again := Kinds()[step.Op.Kind()]()
			if err := json.Unmarshal(data, again); err != nil {
				t.Fatal(err)
			}
			if again.Subject() != step.Op.Subject() {
				t.Errorf("%s became %s", step.Op.Subject(), again.Subject())
			}
			if diff := cmp.Diff(step.What, m.steps()[0].What); diff != "" {
				t.Errorf("asked again (-first +second):\n%s", diff)
			}
		})
	}
}

func TestWhatCannotBeMadeSaysWhatToDo(t *testing.T) {
	t.Parallel()
	m := newMachine(t, map[string]string{"/boot/extlinux/extlinux.conf": "", "/proc/cmdline": "ro\n"})
	m.refused(`rackless does not change the boot loader of this machine (/boot/extlinux/extlinux.conf): add "` +
		planText +
		`" to the command line of the kernel, in place of other values of the same, in its lines append; ` +
		`start the machine again, and prepare again`)
	m.write("/proc/cmdline", "ro "+planText+"\n")
	m.mustMake(change.InPlace)

	m = newMachine(t, map[string]string{"/proc/cmdline": "ro\n"})
	m.efi("StubInfo", "systemd-stub 252")
	m.refused("in /etc/kernel/cmdline, and build the image again: kernel-install add-all")
}

const readOnly = "RACKLESS_TEST_READ_ONLY"

func TestAReadOnlyFileSystemIsRefused(t *testing.T) {
	if dir := os.Getenv(readOnly); dir != "" {
		err := canWrite(&change.System{Root: dir}, "/etc", "/boot/grub")
		if err == nil || err.Error() != "/boot cannot be written (read-only file system): mount it for writing, or "+
			"set the arguments in the image that this machine is started from" {
			t.Error(err)
		}
		return
	}
	dir := t.TempDir()
	for _, d := range []string{"/boot", "/etc"} {
		if err := os.Mkdir(dir+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := canWrite(&change.System{Root: dir}, "/boot/grub/not/yet", "/etc"); err != nil {
		t.Error(err)
	}
	if out, err := exec.Command("unshare", "-rm", "true").CombinedOutput(); err != nil {
		t.Skipf("no mount namespaces for this user: %v: %s", err, out)
	}
	cmd := exec.Command("unshare", "-rm", "sh", "-c",
		`mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -test.run="^$3\$"`, "sh", dir+"/boot",
		os.Args[0], t.Name())
	cmd.Env = append(os.Environ(), readOnly+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestStepsSayWhy(t *testing.T) {
	t.Parallel()
	m := debian(t, debianDefaults)
	steps, err := Steps(m.System, []string{"iommu=pt", "isolcpus=2"}, []string{"devices", "peace"})
	if err != nil || len(steps) != 1 {
		t.Fatal(steps, err)
	}
	s := steps[0]
	if s.Why != "iommu=pt: devices\nisolcpus=2: peace" || !s.Boot || s.Risk == "" {
		t.Errorf("got %+v", s)
	}
	if steps, err := Steps(m.System, nil, nil); steps != nil || err != nil {
		t.Errorf("without arguments: %v, %v", steps, err)
	}
	if _, err := Steps(m.System, []string{"a=$(reboot)"}, nil); err == nil || !strings.Contains(err.Error(),
		"kernel_args[0]") {
		t.Error(err)
	}
	m.write("/boot/grub/grub.cfg", "menuentry 'a' {")
	if _, err := Steps(m.System, planArgs, nil); err == nil ||
		err.Error() != `/boot/grub/grub.cfg: a "{" without its "}": make it again with grub-mkconfig` {
		t.Error(err)
	}
}

func TestLinksInACircleAreAnError(t *testing.T) {
	t.Parallel()
	m := newMachine(t, nil)
	for from, to := range map[string]string{"/a": "b", "/b": "/a"} {
		if err := os.Symlink(to, m.Path(from)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := follow(m.System, "/a"); err == nil || !strings.Contains(err.Error(), "/a: more than 8 links") &&
		!strings.Contains(err.Error(), "/b: more than 8 links") {
		t.Error(err)
	}
}
