package export

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/render"
)

// instance is the configuration of an instance as incus create reads it. All values are texts.
type instance struct {
	Config  map[string]string            `json:"config"`
	Devices map[string]map[string]string `json:"devices"`
}

// Incus returns the configuration of each node of the plan, and the commands that make virtual machines of them.
func Incus(in render.Input) ([]render.Artifact, error) {
	if err := check(&in); err != nil {
		return nil, fmt.Errorf("export incus: %w", err)
	}
	name := func(node string) string { return dns(in.Plan.Lab + "-" + node) }
	if err := unique(planned(in), name); err != nil {
		return nil, fmt.Errorf("export incus: %w", err)
	}
	seeds, err := render.Seeds(in, false)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString("#!/bin/sh\n" + head(in, "Makes the nodes of the lab as virtual machines of Incus; incus start "+
		"NAME starts each.") + "set -eu\ncd \"$(dirname \"$0\")\"\n")
	var files []render.Artifact
	for i := range in.Plan.Nodes {
		n := &in.Plan.Nodes[i]
		file := n.Name + ".yaml"
		fmt.Fprintf(&b, "incus create images:debian/12/cloud %s --vm <%s\n", name(n.Name), file)
		v, err := incus(in, n, seeds[i])
		if err != nil {
			return nil, fmt.Errorf("export incus: node %q: %w", n.Name, err)
		}
		data, err := document(head(in, fmt.Sprintf("Node %s. Not carried: which virtual CPU runs on which CPU of "+
			"the list; where QEMU's own threads run; NUMA nodes of the guest, which are Incus's choice; the MAC "+
			"address of a NIC that is given whole.", n.Name)), v,
			map[string]string{"$.config.'limits.cpu'": "CPUs of the host, not a number of CPUs"})
		if err != nil {
			return nil, err
		}
		files = append(files, text(file, string(data)))
	}
	return append([]render.Artifact{{Path: "create.sh", Mode: 0o755, Data: []byte(b.String())}}, files...), nil
}

func incus(in render.Input, n *plan.Node, seed render.Seed) (instance, error) {
	v := instance{Devices: map[string]map[string]string{}, Config: map[string]string{
		"limits.cpu": n.CPUs().String(), "limits.memory": kibi(n.MemoryBytes, "B"),
		"security.secureboot": "false", "cloud-init.user-data": seed.UserData,
		"cloud-init.network-config": seed.NetworkConfig,
	}}
	if n.CPUs().Len() == 1 { // "3" would be three CPUs, wherever they are
		v.Config["limits.cpu"] = fmt.Sprintf("%[1]d-%[1]d", n.VCPUs[0])
	}
	if pageBytes(n) > 0 {
		v.Config["limits.memory.hugepages"] = "true"
	}
	for i, c := range whole(n) {
		d := map[string]string{"type": "pci", "address": c.ID}
		if c.Kind == plan.KindGPU {
			d = map[string]string{"type": "gpu", "gputype": "physical", "pci": c.ID}
		}
		v.Devices[fmt.Sprintf("%s%d", c.Kind, i)] = d
	}
	for _, p := range n.Ports() {
		if p.Card == nil || p.Card.Kind != plan.KindVF {
			continue
		}
		id := p.Card.ID
		if p.Card.VF != nil {
			id = fmt.Sprintf("%s/vf%d", id, *p.Card.VF)
		}
		a, err := render.Address(in, id)
		if err != nil {
			return v, err
		}
		v.Devices[p.Name] = map[string]string{"type": "pci", "address": a.String()}
	}
	return v, nil
}
