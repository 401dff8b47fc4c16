package qemu

import (
	"fmt"

	"github.com/rackless/rackless/vm"
)

// adapterArgs returns the arguments of a ConnectX adapter. Each is behind a root port of its own, with room for its
// registers. A template has the ports alone: the state of an adapter is its server's and not in a template, so clones
// find theirs when they look for it.
func adapterArgs(i int, n NIC) []string {
	port := fmt.Sprintf("cx%d", i)
	args := []string{"-device",
		fmt.Sprintf("pcie-root-port,id=%s,chassis=%d,hotplug=off,power_controller_present=off,pref64-reserve=64M", port,
			i+1)}
	if n.Adapter == "" {
		return args
	}
	return append(args, "-device", vm.VFIOUser{ID: fmt.Sprintf("nic%d", i), Bus: port, Socket: n.Adapter}.Device())
}
