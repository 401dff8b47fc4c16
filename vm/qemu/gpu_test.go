package qemu

import (
	"strings"
	"testing"

	"github.com/rackless/rackless/lab"
)

// Each path of a GPU is a place in the PCI tree: behind the switch of its NIC, behind a second switch, or behind a root
// port of its own. An adapter without a GPU beside it keeps its own root port.
func TestPlacesOfGPUs(t *testing.T) {
	s := Spec{Adapters: true, NICs: []NIC{{Adapter: "/a"}, {Adapter: "/b"}}}
	for _, path := range []lab.GPUPath{lab.GPUPathPIX, lab.GPUPathPXB, lab.GPUPathPHB} {
		s.GPUs = append(s.GPUs, GPU{Socket: "/" + string(path), Memory: 256 << 20, NIC: 1, Path: path})
	}
	above := map[string]string{} // bus by the device, or its socket
	for i, arg := range pciArgs(s) {
		if i%2 == 0 {
			continue
		}
		id, bus := arg, "pcie.0"
		if strings.HasPrefix(arg, "{") { // a device of vfio-user
			_, id, _ = strings.Cut(arg, `"path":"`)
			id, _, _ = strings.Cut(id, `"`)
			_, bus, _ = strings.Cut(arg, `"bus":"`)
			bus, _, _ = strings.Cut(bus, `"`)
		} else {
			for option := range strings.SplitSeq(arg, ",") {
				if name, value, _ := strings.Cut(option, "="); name == "id" {
					id = value
				} else if name == "bus" {
					bus = value
				}
			}
			kind, _, _ := strings.Cut(arg, ",")
			above["kind of "+id] = kind
		}
		above[id] = bus
	}
	way := func(id string) string {
		var kinds []string
		for bus := above[id]; bus != "pcie.0" && len(kinds) < 9; bus = above[bus] {
			kinds = append(kinds, above["kind of "+bus])
		}
		return strings.Join(kinds, " ")
	}
	const one, root = "xio3130-downstream x3130-upstream", "pcie-root-port"
	for id, want := range map[string]string{"/a": root, "/b": one + " " + root, "/pix": one + " " + root,
		"/pxb": one + " " + one + " " + root, "/phb": root} {
		if got := way(id); got != want {
			t.Errorf("%s is behind %q, want %q", id, got, want)
		}
	}
}
