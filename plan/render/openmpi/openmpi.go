// Package openmpi writes a hostfile and a rank file for Open MPI's mpirun from the plan of a lab.
package openmpi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
)

// A Node runs ranks.
type Node struct {
	Name  string
	CPUs  int // equal cores, if the plan lacks the node
	Ranks int
}

// NodesOf gives a rank to each core.
func NodesOf(p *plan.Plan) []Node {
	return lists.Map(p.Nodes, func(n plan.Node) Node {
		return Node{Name: n.Name, CPUs: len(n.VCPUs), Ranks: len(coresOf(p, Node{Name: n.Name}))}
	})
}

// Hostfile lists the nodes with their numbers of ranks.
func Hostfile(nodes []Node) string {
	var b strings.Builder
	for _, n := range nodes {
		fmt.Fprintf(&b, "%s slots=%d\n", n.Name, n.Ranks)
	}
	return b.String()
}

// Rankfile gives cores several ranks if a node has more ranks than cores. The plan is nil in a lab without one.
func Rankfile(lab string, p *plan.Plan, nodes []Node) string {
	basis := "The plan says which cores are next to the network."
	if p == nil {
		basis = "No plan places its nodes: all cores of a node are alike."
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Ranks of lab %s, made by rackless. %s\n", lab, basis)
	rank := 0
	for _, n := range nodes {
		cores := coresOf(p, n)
		for k := 0; k < n.Ranks && len(cores) > 0; k++ {
			c := cores[k%len(cores)]
			fmt.Fprintf(&b, "rank %d=%s slot=%d", rank, n.Name, c.number)
			if c.why != "" {
				b.WriteString(" # " + c.why)
			}
			b.WriteByte('\n')
			rank++
		}
	}
	return b.String()
}

type core struct {
	number int
	why    string // its location
}

// coresOf begins with the NUMA node of the first port, through which messages pass, then the nodes next to it.
func coresOf(p *plan.Plan, node Node) (cores []core) {
	i := -1
	if p != nil {
		i = slices.IndexFunc(p.Nodes, func(n plan.Node) bool { return n.Name == node.Name })
	}
	if i < 0 {
		for i := range node.CPUs {
			cores = append(cores, core{number: i})
		}
		return cores
	}
	n := &p.Nodes[i]
	threads, cpus := 1, "CPU "
	if n.SMT && n.Threads > 1 {
		threads, cpus = n.Threads, "CPUs "
	}
	near, port := 0, ""
	if ports := n.Ports(); len(ports) > 0 && ports[0].Card != nil && ports[0].Card.Cell != nil {
		near, port = *ports[0].Card.Cell, ports[0].Name
	}
	distance := func(c plan.Cell) int {
		if near < 0 || near >= len(c.Distances) {
			return 0
		}
		return c.Distances[near]
	}
	cells := slices.Clone(n.Cells)
	slices.SortStableFunc(cells, func(a, b plan.Cell) int { return cmp.Compare(distance(a), distance(b)) })
	for _, c := range cells {
		why := fmt.Sprintf("NUMA node %d", c.Cell)
		switch {
		case port == "":
		case c.Cell == near:
			why += ", which has " + port
		default:
			why += fmt.Sprintf(", at distance %d from that of %s", distance(c), port)
		}
		for v := max(0, c.FirstVCPU); v+threads <= min(c.FirstVCPU+c.VCPUs, len(n.VCPUs)); v += threads {
			place := "not pinned on the host"
			if !n.Unpinned {
				on := lists.Map(n.VCPUs[v:v+threads], func(cpu int) string { return fmt.Sprint(cpu) })
				place = cpus + strings.Join(on, ", ") + " of the host"
			}
			cores = append(cores, core{v / threads, why + "; " + place})
		}
	}
	return cores
}
