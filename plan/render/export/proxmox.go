package export

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/render"
)

// proxmoxFirst occurs only in file names, so it is easy to change.
const proxmoxFirst = 9000

// Proxmox returns configuration files for /etc/pve/qemu-server. It is untested on a real Proxmox VE.
func Proxmox(in render.Input) ([]render.Artifact, error) {
	if err := check(&in); err != nil {
		return nil, fmt.Errorf("export proxmox: %w", err)
	}
	var files []render.Artifact
	for i := range in.Plan.Nodes {
		data, err := proxmox(in, &in.Plan.Nodes[i])
		if err != nil {
			return nil, fmt.Errorf("export proxmox: node %q: %w", in.Plan.Nodes[i].Name, err)
		}
		files = append(files, text(fmt.Sprintf("%d.conf", proxmoxFirst+i), data))
	}
	return files, nil
}

func proxmox(in render.Input, n *plan.Node) (string, error) {
	var b strings.Builder
	line := func(key, format string, args ...any) { fmt.Fprintf(&b, key+": "+format+"\n", args...) }
	sockets, cores, threads, _ := n.Topology()
	homes, note := withCPUs(shares(in.Host, n))
	b.WriteString(head(in, fmt.Sprintf("Node %s. Untested: no Proxmox VE was at hand. For /etc/pve/qemu-server, "+
		"with a free number as its name; then add a disk and a network (qm set). Not carried: which virtual CPU "+
		"runs on which CPU, since affinity holds the whole process, QEMU's own threads too; threads of a core, "+
		"which Proxmox VE does not show to a guest. %s", n.Name, note)))
	line("name", "%s", dns(in.Plan.Lab+"-"+n.Name))
	line("machine", "q35")
	line("bios", "ovmf")
	line("ostype", "l26")
	line("cpu", "host")
	line("sockets", "%d", sockets)
	line("cores", "%d", cores*threads)
	line("affinity", "%s", n.CPUs())
	line("memory", "%d", n.MemoryBytes/mib)
	line("balloon", "0")
	if size := pageBytes(n); size > 0 {
		line("hugepages", "%d", size/mib)
	}
	line("numa", "1")
	for i, s := range homes {
		line(fmt.Sprintf("numa%d", i), "cpus=%s,hostnodes=%d,memory=%d,policy=bind",
			strings.ReplaceAll(topology.CPUs(s.vcpus...).String(), ",", ";"), s.node, s.bytes/mib)
	}
	for i, c := range n.Cards {
		id := c.ID
		if c.Kind == plan.KindVF && c.VF != nil {
			id = fmt.Sprintf("%s/vf%d", c.ID, *c.VF)
		}
		a, err := render.Address(in, id)
		if err != nil {
			return "", err
		}
		address := a.String()
		if len(c.Functions) > 1 {
			// Without the function number, it stands for all of the card.
			address, _, _ = strings.Cut(address, ".")
		}
		line(fmt.Sprintf("hostpci%d", i), "%s,pcie=1", address)
	}
	return b.String(), nil
}
