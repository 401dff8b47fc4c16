package inspect

import (
	"strings"
	"testing"
)

func TestPiecesOfADomain(t *testing.T) {
	t.Parallel()
	const tail = "  <cpu mode='host-passthrough'>\n    <topology sockets='1' cores='4' threads='1'/>\n" +
		"  </cpu>\n  <devices>\n    <hostdev mode='subsystem' type='pci' managed='yes'>\n      <source>\n" +
		"        <address domain='0x0000' bus='0x81' slot='0x00' function='0x0'/>\n      </source>\n    </hostdev>\n"
	const head = "<domain type='kvm'>\n  <name>vm1</name>\n  <vcpu placement='static'>4</vcpu>\n"
	for name, text := range map[string]string{"the end": tail + "  </devices>\n</domain>\n",
		"the beginning": head + tail + "    <interface type='direct'>\n      <mac addr"} {
		h, err := ReadStream(t.Context(), strings.NewReader(text), "vm.xml")
		if err != nil || len(h.Tenants) != 1 || len(h.Tenants[0].Devices) != 1 {
			t.Errorf("%s: %v, %+v", name, err, h)
			continue
		}
		if name == "the beginning" && (h.Tenants[0].Name != "vm1" || len(h.Unread) != 1) {
			t.Errorf("%s: tenant %q, not read %q", name, h.Tenants[0].Name, h.Unread)
		}
	}
}
