package emulate_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/emulate"
	"github.com/rackless/rackless/image"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm"
)

// The real system keeps what a real one keeps: after a power cut, what update-grub wrote is in force, what was synced
// is there, and so are the adapters. The tutorial, which a test follows, has reboots.
func TestTheDiskAndTheBootLoaderSurvivePowerCuts(t *testing.T) {
	if testing.Short() {
		t.Skip("machines are not booted with -short")
	}
	if _, version, err := vm.Find(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("qemu-system-x86_64 %s: %v", version, err)
		}
		t.Skipf("qemu-system-x86_64 %s cannot be used: %v", version, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute) // of an image that is not there yet, most of it
	defer cancel()
	user, err := rack.DefaultDirs(os.Getenv, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	img, err := image.Host.Ensure(ctx, image.Options{Cache: user.Images(), Progress: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	run, err := os.MkdirTemp("/tmp", "rl") // short, since sockets lie below it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(run)
	r740, err := emulate.Find("r740")
	if err != nil {
		t.Fatal(err)
	}
	o := emulate.Options{
		Dirs: rack.Dirs{Run: run, Cache: user.Cache}, Profile: r740.Scale(20), Name: "reboot",
		Accel: "tcg",
		Boot:  emulate.Boot{Key: img.Key, Disk: img.DiskPath()},
		Progress: &rack.Progress{Report: func(e rack.Event) {
			if e.End {
				t.Logf("%s: %v", e.Step, e.Took.Round(100*time.Millisecond))
			}
		}},
	}
	h, err := emulate.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(context.WithoutCancel(ctx), o.Dirs); err != nil {
			t.Error(err)
		}
	}()
	sh := func(script string) string {
		t.Helper()
		var out, complaints bytes.Buffer
		exit, err := h.Exec(ctx, nil, []string{"sh", "-c", script}, nil, &out, &complaints)
		if err != nil || exit != 0 {
			t.Fatalf("%s: exit status %d, %v: %s", script, exit, err, &complaints)
		}
		return strings.TrimSpace(out.String())
	}
	hasAdapters := func(when string) {
		t.Helper()
		const want = "rocep59s0f0 rocep59s0f1"
		if got := sh("udevadm settle --timeout=300; ls /sys/class/infiniband | paste -sd' '"); got != want {
			t.Errorf("%s: RDMA devices %s, want %s", when, got, want)
		}
	}
	hasAdapters("at the start")
	sh("echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX isolcpus=2 hugepages=16\"' >>/etc/default/grub; update-grub")

	// What was written last is most likely not on the disk; whether it is is the kernel's affair.
	sh("echo synced >/root/synced; sync; echo unsynced >/root/unsynced")
	if err := h.PowerCut(ctx); err != nil {
		t.Fatal(err)
	}
	if err := h.Boot(ctx, o); err != nil {
		t.Fatal(err)
	}
	for _, is := range []struct{ name, script, want string }{
		{"what was synced is there", "cat /root/synced", "synced"},
		{"its name is its own", "hostname", "reboot"},
		{"CPUs are isolated", "cat /sys/devices/system/cpu/isolated", "2"},
		{"there are huge pages", "cat /proc/sys/vm/nr_hugepages", "16"},
		{"the arguments are beside those there were",
			"grep -o 'console=ttyS0,115200\\|isolcpus=2\\|root=UUID' /proc/cmdline | sort",
			"console=ttyS0,115200\nisolcpus=2\nroot=UUID"},
	} {
		if got := sh(is.script); got != is.want {
			t.Errorf("after the power cut: %s: %s: got %q, want %q", is.name, is.script, got, is.want)
		}
	}
	hasAdapters("after the power cut")
}
