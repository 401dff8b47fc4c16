package libvirt

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/storey"
	"github.com/rackless/rackless/vm/image"
	"github.com/rackless/rackless/vm/libvirttest"
)

// The real ssh, with libvirt's helper at the other end. TestADomainByEachTransport is the short form.
func TestE2EALabOnAnotherMachineBySSH(t *testing.T) {
	storey.E2E(t)
	t.Parallel()
	img := nodeImage(t)
	need(t, libvirttest.Programs)
	need(t, sshPrograms)
	ctx := limited(t)
	d, err := startSSH()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	}()
	comesAndGoes(ctx, t, d, img)

	other := filepath.Join(d.Dir, "other")
	if out, err := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
		other).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	uri := strings.Replace(d.URI, d.Dir+"/key", other, 1)
	if c, err := Connect(ctx, uri); err == nil {
		t.Errorf("connected with a key of somebody else's: %v", c.Close())
	} else if !strings.Contains(err.Error(), "let ssh log in there by key") {
		t.Errorf("with a key of somebody else's: %v", err)
	}
}

func TestE2EALabOnAnotherMachineByTLS(t *testing.T) {
	storey.E2E(t)
	t.Parallel()
	img := nodeImage(t)
	need(t, libvirttest.Programs)
	ctx := limited(t)
	d, err := startTLS()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	}()
	comesAndGoes(ctx, t, d, img)

	elsewhere := filepath.Join(d.Dir, "nothing")
	if err := os.Mkdir(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	uri := strings.Replace(d.URI, filepath.Join(d.Dir, "pki"), elsewhere, 1)
	if c, err := Connect(ctx, uri); err == nil {
		t.Errorf("connected without a certificate: %v", c.Close())
	} else if !strings.Contains(err.Error(), "clientcert.pem: no such file or directory") ||
		!strings.Contains(err.Error(), "make certificates for libvirt's TLS") {
		t.Errorf("without a certificate: %v", err)
	}
}

func comesAndGoes(ctx context.Context, t *testing.T, d *libvirttest.Daemon, img *image.Image) {
	t.Helper()
	c, err := Connect(ctx, d.URI)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	if c.Local() || c.Caps.QEMU == "" {
		t.Errorf("%s: local %v, capabilities %+v", c.URI, c.Local(), c.Caps)
	}
	boot, err := c.install(ctx, img, filepath.Join(d.Dir, "pool"))
	if err != nil {
		t.Fatal(err)
	}
	sent, err := os.ReadFile(boot.Kernel)
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := os.ReadFile(img.KernelPath())
	if err != nil || string(sent) != string(kernel) {
		t.Errorf("the kernel that arrived is another: %d bytes of %d, %v", len(sent), len(kernel), err)
	}
	specs := pair(t, boot)[:1]
	changes, err := c.Up(ctx, specs, UpOptions{})
	if diff := cmp.Diff([]Change{{Name: "pair.vm00", Action: Create}}, changes); err != nil || diff != "" {
		t.Fatalf("up: %v (-want +got):\n%s", err, diff)
	}
	agent, err := c.AwaitAgent(ctx, "pair.vm00")
	if err != nil {
		t.Fatal(err)
	}
	node, err := agent.ReadFacts(ctx)
	if err = errors.Join(err, agent.Close()); err != nil || node.Kernel.Release == "" {
		t.Errorf("facts of the node: %+v, %v", node, err)
	}
	if err := errors.Join(c.Down(ctx, []string{"pair.vm00"}, 0), c.uninstall(ctx)); err != nil {
		t.Error(err)
	}
}
