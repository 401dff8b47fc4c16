package main

import (
	"os"
	"strings"
	"testing"

	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm/image"
)

// isAsItsImage leaves it to TestPowerCut that kernel arguments and files stay over a boot.
func (h *small) isAsItsImage(t *testing.T) {
	t.Helper()
	d, err := rack.DefaultDirs(os.Getenv, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	img, err := image.Host.Ensure(t.Context(), image.Options{Cache: d.Images(), Progress: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	for _, is := range []struct{ name, script, want string }{
		{"all units started", "systemctl is-system-running --wait", "running"},
		{"the kernel is the one in the manifest", "uname --kernel-release", img.KernelVer},
		{"no end of an interrupt can be lost", "dmesg | grep -c 'x2apic enabled'", "1"},
		{"systemd runs it", "cat /proc/1/comm", "systemd"},
		{"cgroups are version 2", "stat --file-system --format %T /sys/fs/cgroup", "cgroup2fs"},
		{"the root file system is the partition, writable",
			"findmnt --noheadings --raw --output SOURCE,FSTYPE,LABEL /; touch /root/x",
			"/dev/vda1 ext4 rackless-root"},
		{"GRUB started it", "cut -d - -f 1 /proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz"},
		{"the short udevadm is found first, and says what the real one says",
			"command -v udevadm; for of in vda vda1 vdb disk/by-label/rackless-root; do for udevadm in udevadm " +
				"/usr/bin/udevadm; do $udevadm info --query path --name /dev/$of || echo none; done; done | " +
				"uniq -c | cut -d / -f 1 | tr -d ' \n'", "/usr/local/bin/udevadm\n2222"},
		{"GRUB has an entry to repair things", "grep -c 'menuentry .*(recovery mode)' /boot/grub/grub.cfg", "1"},
		{"both consoles have a shell of root's", "ps -C bash -o user=,tty=,args= | tr -s ' ' | sort",
			"root hvc0 /bin/bash --login\nroot ttyS0 /bin/bash --login"},
		{"the second disk comes when it is asked for",
			"findmnt --noheadings --output FSTYPE /opt/rackless; rackless >/dev/null; findmnt --noheadings --raw " +
				"--types ext4 --output OPTIONS /opt/rackless | cut -d , -f 1; systemctl show-environment | " +
				"grep RACKLESS", "autofs\nro\nRACKLESS_CACHE=/opt/rackless/cache"},
		{"the modules are there", "modprobe --all --dry-run vfio-pci igb rdma_rxe 9p 9pnet_virtio && echo ok", "ok"},
		{"libvirt knows what QEMU can do since the template was made, and does not ask again",
			"virsh --quiet --connect qemu:///system capabilities >/dev/null; " +
				"cd /var/cache/libvirt/qemu/capabilities; find . -type f -newer /etc/hostname; " +
				"grep -l '<emulator>/usr/bin/qemu-system-x86_64' *.xml | wc --lines", "1"},
		{"libvirtd answers", "virsh --quiet --connect qemu:///system uri", "qemu:///system"},
		{"nothing of how it was built is left",
			"ls -d /etc/apt/apt.conf.d/*mmdebstrap* /etc/dpkg/dpkg.cfg.d/*mmdebstrap* /etc/apt/sources.list " +
				"/mnt/* 2>/dev/null; true", ""},
	} {
		if got := strings.TrimSpace(h.mustHost(t, is.script)); got != is.want {
			t.Errorf("%s: %s: got %q, want %q", is.name, is.script, got, is.want)
		}
	}
}
