package libvirt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/libvirttest"
)

// Over the network, with a real TLS: a lab comes up and goes, and its images travel through libvirt's own connection.
func TestALabOnAnotherMachineByTLS(t *testing.T) {
	t.Parallel()
	img := image(t)
	need(t, libvirttest.Programs)
	ctx := limited(t)
	d, err := libvirttest.StartTLS()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	}()
	c, err := Connect(ctx, d.URI)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	if c.Local() || c.Caps.Emulator == "" {
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
	if err = errors.Join(err, agent.Close()); err != nil || node.Kernel == "" {
		t.Errorf("facts of the node: %+v, %v", node, err)
	}
	if err := errors.Join(c.Down(ctx, []string{"pair.vm00"}, 0), c.uninstall(ctx)); err != nil {
		t.Error(err)
	}

	// A client without a certificate of the daemon's authority is turned away, and says why.
	elsewhere := filepath.Join(d.Dir, "nothing")
	if err := os.Mkdir(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	uri := strings.Replace(d.URI, filepath.Join(d.Dir, "pki"), elsewhere, 1)
	if c, err := Connect(ctx, uri); err == nil {
		t.Errorf("connected without a certificate: %v", c.Close())
	} else if !strings.Contains(err.Error(), "cacert.pem") {
		t.Errorf("without a certificate: %v", err)
	}
}
