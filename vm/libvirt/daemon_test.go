package libvirt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/render"
	"github.com/rackless/rackless/vm/image"
	"github.com/rackless/rackless/vm/libvirttest"
)

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 4*time.Minute, errors.New("the test's own limit"))
	t.Cleanup(cancel)
	return ctx
}

func need(t *testing.T, programs map[string]string) {
	t.Helper()
	for program, debian := range programs {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		if os.Getenv("CI") != "" {
			t.Fatalf("no %s: install Debian's %s", program, debian)
		}
		t.Skipf("no %s: install Debian's %s to run this test", program, debian)
	}
}

// theDaemon serves all tests, because a new one first probes its QEMU for 8 s.
var theDaemon = struct {
	once sync.Once
	*libvirttest.Daemon
	err error
}{}

func TestMain(m *testing.M) {
	code := m.Run()
	if theDaemon.Daemon != nil {
		if err := theDaemon.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func connected(t *testing.T) (*libvirttest.Daemon, *Conn) {
	t.Helper()
	need(t, libvirttest.Programs)
	theDaemon.once.Do(func() { theDaemon.Daemon, theDaemon.err = libvirttest.Start() })
	d, err := theDaemon.Daemon, theDaemon.err
	if err != nil {
		t.Fatal(err)
	}
	c, err := Connect(limited(t), d.URI)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, c
}

func nodeImage(t *testing.T) *image.Image {
	t.Helper()
	if testing.Short() {
		t.Skip("boots the built-in image: not with -short")
	}
	cache := os.Getenv("RACKLESS_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(dir, "rackless")
	}
	need(t, map[string]string{"apt-get": "apt", "dpkg-deb": "dpkg"})
	img, err := image.Node.Ensure(limited(t), image.Options{Cache: filepath.Join(cache, "images"),
		Progress: func(s string) {
			t.Log(s)
		}})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func pair(t *testing.T, boot *render.Boot) []Spec {
	t.Helper()
	in := render.Input{Plan: &plan.Plan{Schema: plan.Schema, Lab: "pair"}, Lab: &lab.Lab{Name: "pair"},
		Host: &topology.Host{}, Boot: boot, Emulated: true, Made: "rackless test"}
	const memory = 320 << 20
	for i := range 2 {
		in.Plan.Nodes = append(in.Plan.Nodes, plan.Node{
			Name: fmt.Sprintf("vm%02d", i), VCPUs: []int{0}, Cores: 1, Threads: 1, EmulatorCPUs: topology.CPUs(0),
			IOThreadCPUs: topology.CPUs(0),
			MemoryBytes:  memory, Memory: []plan.NodeMemory{{Bytes: memory}},
			Cells: []plan.Cell{{NUMANodes: []int{0}, VCPUs: 1, Bytes: memory, Distances: []int{10}}},
		})
	}
	artefacts, err := render.Domains(in)
	if err != nil {
		t.Fatal(err)
	}
	var specs []Spec
	for i, a := range artefacts {
		specs = append(specs, Spec{Name: lab.VMName("pair", in.Plan.Nodes[i].Name), XML: a.Data})
	}
	return specs
}

// wire connects two domains' NICs, with drivers of their own like passed-through ones, by UDP ports. In the kernel's
// order they come after a virtio NIC that takes the name eth0.
func wire(t *testing.T, specs []Spec) {
	t.Helper()
	ports := make([]int, 4)
	for i := range ports {
		l, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // so that the ports differ
		ports[i] = l.LocalAddr().(*net.UDPAddr).Port
	}
	nic := func(mac, model, bus string, from, to int) string {
		return fmt.Sprintf(`    <interface type='udp'>
      <mac address='%s'/>
      <source address='127.0.0.1' port='%d'><local address='127.0.0.1' port='%d'/></source>
      <model type='%s'/>
      <rom enabled='no'/>
      <address type='pci' domain='0x0000' bus='%s' slot='0x00' function='0x0'/>
    </interface>
`, mac, to, from, model, bus)
	}
	for i := range specs {
		nics := nic(fmt.Sprintf("52:54:00:aa:01:%02d", i), "virtio", "0x01", ports[i], ports[1-i]) +
			nic(fmt.Sprintf("52:54:00:aa:00:%02d", i), "e1000e", "0x02", ports[2+i], ports[3-i])
		specs[i].XML = bytes.Replace(specs[i].XML, []byte("    <!-- virsh console -->\n"), []byte(nics), 1)
	}
}

// nicPath is on bus 2.
const nicPath = "pci0000:00/0000:00:01.1/0000:*:00.0"

const foreign = `<domain type='qemu'><name>tenant</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>
<metadata><rackless:node xmlns:rackless='https://example.org/another' lab='pair' name='vm00'/></metadata></domain>`
