package libvirt

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rackless/rackless/plan/render"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/image"
	"github.com/rackless/rackless/vm/libvirttest"
	"github.com/rackless/rackless/vm/qapi"
)

// Without a boot medium: the parts of libvirt that need no guest.
func TestADomainByEachTransport(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a libvirt: not with -short")
	}
	need(t, libvirttest.Programs)
	need(t, sshPrograms)
	img := &image.Image{Key: "0123", Dir: t.TempDir(), Kernel: "vmlinux", Initramfs: "initramfs"}
	for i, path := range []string{img.KernelPath(), img.InitramfsPath()} {
		// one fits into a packet
		if err := os.WriteFile(path, bytes.Repeat([]byte("content"), 1+i<<20), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, start := range map[string]func() (*libvirttest.Daemon, error){
		"socket": libvirttest.Start, "ssh": startSSH, "tls": startTLS,
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "ssh" {
				t.Skip("each daemon looks for 8 s what its QEMU can do: one of them with -short")
			}
			t.Parallel()
			ctx := limited(t)
			d, err := start()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := d.Stop(); err != nil {
					t.Error(err)
				}
			})
			c, err := Connect(ctx, d.URI)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			for range 2 { // the second time everything exists
				boot, err := c.install(ctx, img, filepath.Join(d.Dir, "pool"))
				if err != nil {
					t.Fatal(err)
				}
				for from, to := range map[string]string{img.KernelPath(): boot.Kernel,
					img.InitramfsPath(): boot.Initramfs} {
					want, wantErr := os.ReadFile(from)
					got, err := os.ReadFile(to)
					if err := errors.Join(err, wantErr); err != nil || !bytes.Equal(got, want) {
						t.Errorf("%s arrived as another file: %d bytes of %d, %v", from, len(got), len(want), err)
					}
				}
			}
			boot := &render.Boot{}
			specs := pair(t, boot)[:1]
			if _, err := c.Up(ctx, specs, UpOptions{}); err != nil {
				t.Fatal(err)
			}
			if changes, err := c.Compare(ctx, specs); err != nil || changes[0].Action != Keep {
				t.Errorf("up again would: %+v, %v", changes, err)
			}
			th, err := c.Threads(ctx, "pair.vm00")
			if err != nil || len(th.VCPUs) != 1 || len(th.IOThreads) != 1 || (th.PID > 0) != (name == "socket") {
				t.Errorf("threads %+v, %v", th, err)
			}
			agent, err := c.Agent(ctx, "pair.vm00")
			if err != nil {
				t.Fatal(err)
			}
			unreachable := func(when string) {
				t.Helper()
				err := second(agent.Run(ctx, guest.Command{Argv: []string{"true"}}))
				if e, ok := errors.AsType[*qapi.Error](err); !ok || e.Class != qapi.ClassUnreachable {
					t.Errorf("the agent of a domain that %s: %v (%T)", when, err, err)
				}
			}
			unreachable("has none")
			if err := c.uninstall(ctx); err != nil {
				t.Error(err)
			}
			if err := c.Destroy(ctx, "pair.vm00"); err != nil {
				t.Error(err)
			}
			unreachable("does not run")
			if err := c.Down(ctx, []string{"pair.vm00", "pair.vm01"}, 0); err != nil {
				t.Error(err)
			}
			unreachable("is gone")
			if list, err := c.List(ctx); err != nil || len(list) != 0 {
				t.Errorf("left: %v, %v", list, err)
			}
			if err := c.uninstall(ctx); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(d.Dir, "pool")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the pool's directory is left: %v", err)
			}
		})
	}
}
