package render

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/rackless/rackless/topology"
)

// sriovVars are the data of sriov.sh.
func (v *view) sriovVars() []shellVar {
	var pfs, vfs []string
	for _, c := range v.plan.VFs {
		if a, err := topology.ParsePCIAddr(c.PF); err == nil {
			pfs = append(pfs, fmt.Sprintf("%s %d", a, c.Count))
		}
	}
	for _, p := range v.allPorts() {
		if p.isVF() {
			mac := cleanMAC(p.nic.MAC)
			vfs = append(vfs, fmt.Sprintf("%s %d %s %s", p.pf, *p.card.VF, mac, guidOf(mac)))
		}
	}
	return []shellVar{
		{"pfs", strings.Join(pfs, "\n"), "Physical function, virtual functions that it has to have."},
		{"vfs", strings.Join(vfs, "\n"), "Physical function, number of the virtual one, its MAC address, and the " +
			"GUID made of it for InfiniBand (EUI-64)."},
		{"mtu", strconv.Itoa(v.in.Lab.Fabric.MTU),
			"The fabric's MTU: the port of the physical function drops larger frames."},
		{"trust", "on", "on lets a guest change its MAC address and listen to everything (tcpdump, bridges in the " +
			"guest); set it to off for guests that are not yours."},
		{"spoofchk", "off", "on drops frames that a guest sends with another MAC address than its own; the " +
			"same choice."},
	}
}

// cleanMAC returns a MAC address in lower case, or zeros for what is none: the kernel then refuses
// it, and the script says so.
func cleanMAC(s string) string {
	if _, ok := parseMAC(s); !ok {
		return "00:00:00:00:00:00"
	}
	return strings.ToLower(s)
}

// parseMAC reads six bytes with colons.
func parseMAC(s string) (b [6]byte, ok bool) {
	parts := strings.Split(s, ":")
	if len(parts) != 6 {
		return b, false
	}
	for i, p := range parts {
		one, err := hex.DecodeString(p)
		if err != nil || len(one) != 1 {
			return b, false
		}
		b[i] = one[0]
	}
	return b, true
}

// guidOf returns the EUI-64 of a MAC address as the ip command takes GUIDs: ff:fe in the middle,
// and the bit for "locally administered" turned over (RFC 4291, appendix A).
func guidOf(mac string) string {
	b, _ := parseMAC(mac)
	return fmt.Sprintf("%02x:%02x:%02x:ff:fe:%02x:%02x:%02x", b[0]^2, b[1], b[2], b[3], b[4], b[5])
}
