package boot

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host/change"
)

// realGRUB runs the installed grub-mkconfig in a mount namespace. Only grub-probe is replaced, because there is no
// disk.
func realGRUB(t *testing.T, defaults string) *machine {
	t.Helper()
	mkconfig := need(t, "grub-mkconfig", "grub-common")
	if out, err := exec.Command("unshare", "-rm", "true").CombinedOutput(); err != nil {
		t.Skipf("no mount namespaces for this user: %v: %s", err, out)
	}
	script, err := os.ReadFile(mkconfig)
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, map[string]string{
		"/proc/cmdline":                   "root=/dev/vda1 ro quiet\n",
		"/etc/default/grub":               defaults,
		"/boot/vmlinuz-6.1.0-13-amd64":    strings.Repeat("kernel", 100),
		"/boot/initrd.img-6.1.0-13-amd64": strings.Repeat("initrd", 100),
		"/boot/config-6.1.0-13-amd64":     "CONFIG_BLK_DEV_INITRD=y\n",
		"/boot/vmlinuz-6.1.0-9-amd64":     strings.Repeat("kernel", 100),
		"/boot/initrd.img-6.1.0-9-amd64":  strings.Repeat("initrd", 100),
		"/boot/grub/unicode.pf2":          "",
		"/usr/sbin/grub-mkconfig":         string(script),
		"/probe/bin/grub-probe": `#!/bin/sh
case "$*" in
*--target=device*) echo /dev/vda1 ;;
*--target=fs_uuid*) echo 0b3f7d0c-6d2c-4c8f-9a42-6a1f3f7e3c55 ;;
*--target=partuuid*) echo 8d1cbb1f-01 ;;
*--target=fs*) echo ext2 ;;
*--target=partmap*) echo msdos ;;
*--target=compatibility_hint* | *--target=hints_string*) echo hd0,msdos1 ;;
*--target=abstraction*) ;;
*) exit 1 ;;
esac
`,
	})
	m.programs["grub-mkconfig"] = func(argv []string) (string, error) {
		script := `set -e
mount --bind "$1/boot" /boot
mount --bind "$1/etc/default" /etc/default
mount --bind "$1/run" /run
mount --bind "$1/probe/bin/grub-probe" "$2"
shift 2
exec "$@"`
		args := append([]string{"-rm", "sh", "-c", script, "sh", m.Root, need(t, "grub-probe", "grub-common"),
			mkconfig}, argv[1:]...)
		cmd := exec.CommandContext(context.Background(), "unshare", args...)
		cmd.Env = append(os.Environ(), "LC_ALL=C", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return "", err
	}
	m.write("/boot/grub/grub.cfg", "")
	if _, err := m.programs["grub-mkconfig"]([]string{"grub-mkconfig", "-o", "/boot/grub/grub.cfg"}); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTheRealGrubMkconfigTakesTheDropIn(t *testing.T) {
	t.Parallel()
	m := realGRUB(t, "GRUB_DEFAULT=0\nGRUB_TIMEOUT=5\nGRUB_DISTRIBUTOR=Debian\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet "+
		"isolcpus=1\"\nGRUB_CMDLINE_LINUX='console=ttyS0 dyndbg=\"file a.c +p\"'\n")
	before := m.tree()
	m.mustMake(change.Boot)
	menu, err := parseMenu(m.text("/boot/grub/grub.cfg"))
	if err != nil {
		t.Fatal(err)
	}
	e := menu.ours("")
	// root= depends on /dev/disk of the test's host.
	if _, line, _ := strings.Cut(e.line, " "); line != `ro console=ttyS0 "dyndbg=file a.c +p" `+planText+" quiet" {
		t.Errorf("got %s", e.line)
	}
	made := m.tree()
	m.mustRollback()
	m.wantTree("rolled back", before)
	m.mustMake(change.Boot)
	m.wantTree("made again", made)

	m.write("/boot/vmlinuz-6.1.0-14-amd64", strings.Repeat("kernel", 100))
	m.write("/boot/initrd.img-6.1.0-14-amd64", strings.Repeat("initrd", 100))
	regenerate := func() {
		t.Helper()
		if _, err := m.programs["grub-mkconfig"]([]string{"grub-mkconfig", "-o", "/boot/grub/grub.cfg"}); err != nil {
			t.Fatal(err)
		}
	}
	regenerate()
	m.mustMake(change.Boot)
	m.mustRollback()
	got := m.text("/boot/grub/grub.cfg")
	regenerate()
	if diff := cmp.Diff(m.text("/boot/grub/grub.cfg"), got); diff != "" {
		t.Errorf("rolled back after a kernel update (-what update-grub makes +got):\n%s", diff)
	}
	if !strings.Contains(got, "6.1.0-14") || strings.Contains(got, "iommu=pt") {
		t.Errorf("the menu is\n%s", got)
	}
}
