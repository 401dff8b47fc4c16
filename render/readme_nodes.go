package render

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rackless/rackless/plan"
)

func (v *view) readmeDomains(d *page) {
	d.stepHeading("The nodes")
	d.text("Each node wants a disk: any cloud image (a virtual machine image that knows cloud-init) of a recent " +
		"distribution. CLOUD-IMAGE stands for it.")
	var make, start []string
	for _, n := range v.plan.Nodes {
		name := DomainName(v.plan.Lab, n.Name)
		disk, domain := readWord(DiskPath(v.plan.Lab, n.Name)), readWord(name)
		seed := readWord(strings.TrimSuffix(DiskPath(v.plan.Lab, n.Name), ".qcow2") + "-seed.iso")
		dir := guestDir(n.Name)
		make = append(make,
			"qemu-img convert -O qcow2 CLOUD-IMAGE "+disk+" && qemu-img resize "+disk+" 40G",
			"cloud-localds -N "+dir+"network-config "+seed+" "+dir+"user-data "+dir+"meta-data",
			"virsh define --validate "+readWord(DomainPath(n.Name)),
			"virsh attach-disk "+domain+" "+seed+" sda --type cdrom --targetbus sata --mode readonly --config")
		start = append(start, "virsh start "+domain)
	}
	d.text("Put your ssh key into guests/NODE/user-data first. `cloud-localds` is in cloud-image-utils; `genisoimage " +
		"-V cidata -J -r -o SEED user-data meta-data network-config` does the same.")
	d.code(make...)
	d.code("virsh net-start default   # if it does not run yet; the nodes' management interfaces are on it",
		strings.Join(start, "\n"))
	d.text("Check that the placement is the plan's:")
	var lines []string
	for _, n := range v.plan.Nodes {
		domain := readWord(DomainName(v.plan.Lab, n.Name))
		var cpus []string
		for _, c := range n.VCPUs {
			cpus = append(cpus, strconv.Itoa(c))
		}
		lines = append(lines,
			"virsh vcpupin "+domain+" | awk 'NR > 2 && NF { print $2 }' | xargs",
			"# "+strings.Join(cpus, " "))
		if !n.EmulatorCPUs.IsEmpty() {
			lines = append(lines, "virsh emulatorpin "+domain+" | awk '/\\*/ { print $2 }'",
				"# "+n.EmulatorCPUs.String())
		}
		lines = append(lines, "numastat -p $(cat /run/libvirt/qemu/"+domain+".pid)", "# "+v.memoryText(&n))
	}
	d.code(lines...)
	d.text("Undo: `virsh shutdown NAME`, then `virsh undefine --nvram NAME`; the disks stay.")
}

func (v *view) memoryText(n *plan.Node) string {
	var parts []string
	for _, m := range n.Memory {
		kind := "memory"
		if m.PageBytes > 0 {
			kind = "Huge"
		}
		parts = append(parts, fmt.Sprintf("%s: %d MB on Node %d", kind, m.Bytes>>20, m.NUMANode))
	}
	return strings.Join(parts, ", ")
}

func (v *view) readmeGuests(d *page) {
	d.stepHeading("Inside the nodes")
	d.text("cloud-init has set up the network, installed `rdma-core` and `perftest`, and put `rackless-gid` in " +
		"place. A node that was installed in another way: copy guests/NODE/60-rackless.yaml " +
		"(netplan) or guests/NODE/*.nmconnection (NetworkManager) into it; both say where to.")
	for i := range v.plan.Nodes {
		n := &v.plan.Nodes[i]
		lines := []string{"numactl -H                       # " + numaText(n)}
		if cells := cellsOfDevices(n); n.GuestNUMA && cells != "" {
			lines = append(lines, "lspci -D                         # find the devices, then cat "+
				"/sys/bus/pci/devices/ADDRESS/numa_node: "+cells)
		}
		for k, l := range v.links(i) {
			lines = append(lines, "ip -br -4 addr                   # "+l.addr+" on "+oneLine(v.ports[i][k].nic.Name)+
				" of the plan")
			if !l.found() {
				lines = append(lines, "# "+l.why)
			}
			lines = append(lines, "rackless-gid "+v.ports[i][k].nic.Addr.Addr().String()+
				"            # DEVICE PORT INDEX, such as mlx5_0 1 3")
		}
		if len(v.ports[i]) > 0 {
			lines = append(lines, fmt.Sprintf("ibv_devinfo | grep active_mtu    # %d, from the interface's MTU of %d",
				v.in.Lab.Fabric.RDMAPayload(), v.in.Lab.Fabric.MTU))
		}
		d.text("%s:", mdText(n.Name))
		d.code(lines...)
	}
	d.text("If `rdma link` shows nothing although `lspci` shows the NIC, the image's kernel has no driver for it: " +
		"take a generic kernel, or install linux-modules-extra on Ubuntu.")
}

// numaText is what numactl -H begins with.
func numaText(n *plan.Node) string {
	if len(n.Cells) < 2 {
		return "available: 1 nodes (0)"
	}
	var parts []string
	for _, c := range n.Cells {
		if c.VCPUs > 0 {
			parts = append(parts, fmt.Sprintf("node %d: CPUs %d to %d, %d MB", c.Cell, c.FirstVCPU,
				c.FirstVCPU+c.VCPUs-1, c.Bytes>>20))
		} else {
			parts = append(parts, fmt.Sprintf("node %d: no CPUs, %d MB", c.Cell, c.Bytes>>20))
		}
	}
	return fmt.Sprintf("available: %d nodes (0-%d); %s, less what the kernel keeps", len(n.Cells), len(n.Cells)-1,
		strings.Join(parts, "; "))
}

// cellsOfDevices says on which guest node each device has to be.
func cellsOfDevices(n *plan.Node) string {
	var parts []string
	for _, c := range n.Cards {
		if c.Cell != nil {
			parts = append(parts, fmt.Sprintf("%d for the %s (%s)", *c.Cell, c.Kind, oneLine(c.ID)))
		}
	}
	return strings.Join(parts, ", ")
}

func (v *view) readmeNetwork(d *page) {
	first := -1
	second := -1
	for i := range v.ports {
		if len(v.ports[i]) == 0 {
			continue
		}
		if first < 0 {
			first = i
		} else if second < 0 {
			second = i
		}
	}
	d.stepHeading("The fabric")
	d.text("What the network has to do: switch.md. Nodes that share a cable or a NIC need little of it.")
	if second < 0 {
		d.text("The lab has one node with a network port: there is nothing to measure against from here. " +
			"`ib_write_bw` between two terminals of the node tests NIC and driver alone.")
		return
	}
	a, b := &v.ports[first][0], &v.ports[second][0]
	from, to := a.nic.Addr.Addr().String(), b.nic.Addr.Addr().String()
	d.text("Server in %s, client in %s. The GID index is looked up on each side: it may differ.", mdText(a.node),
		mdText(b.node))
	d.code(
		fmt.Sprintf("%s$ ping -c 3 -M do -s %d %s", oneLine(a.node), v.in.Lab.Fabric.MTU-28, to),
		"# 0% packet loss: the MTU holds all the way",
		fmt.Sprintf("%s$ set -- $(rackless-gid %s) && %sib_write_bw -d \"$1\" -i \"$2\" -x \"$3\" --report_gbits",
			oneLine(a.node), from, v.near(first)),
		fmt.Sprintf("%s$ set -- $(rackless-gid %s) && %sib_write_bw -d \"$1\" -i \"$2\" -x \"$3\" --report_gbits %s",
			oneLine(b.node), to, v.near(second), from),
		"# "+v.bandwidthText(),
		fmt.Sprintf("%s$ set -- $(rackless-gid %s) && %sib_write_lat -d \"$1\" -i \"$2\" -x \"$3\" -n 10000",
			oneLine(a.node), from, v.near(first)),
		fmt.Sprintf("%s$ set -- $(rackless-gid %s) && %sib_write_lat -d \"$1\" -i \"$2\" -x \"$3\" -n 10000 %s",
			oneLine(b.node), to, v.near(second), from),
		"# typical 1 to 3 microseconds on hardware; the 99th percentile close to it is what the isolation is for",
	)
}

// near returns what runs a test on the cores of the first port's NUMA node, in a guest that sees NUMA nodes.
func (v *view) near(i int) string {
	n := &v.plan.Nodes[i]
	if p := v.ports[i][0]; n.GuestNUMA && p.card != nil && p.card.Cell != nil {
		return fmt.Sprintf("numactl -N %d -m %d ", *p.card.Cell, *p.card.Cell)
	}
	return ""
}

func (v *view) bandwidthText() string {
	if r := v.rate(); r > 0 {
		return fmt.Sprintf("BW average: %d Gb/s or more, 96%% of the slowest link of the lab (%d Gb/s); a bond needs "+
			"several queue pairs for that (-q 8)", r*96/100, r)
	}
	return "BW average: 96% of the link's rate or more (ibstat: Rate); a bond needs several queue pairs for that (-q 8)"
}
