package checks

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
)

// gpuScript prints "gpu ADDRESS VENDOR DRIVER FILE FIRST LAST FLAGS NUMA PATH" for each emulated GPU, "nic
// ADDRESS NETDEV RDMADEVICE NUMA PATH" for each network device of a ConnectX, "choice FILE VARIABLE VALUE" for each
// setting that chooses NICs for programs, and "end". FIRST and LAST are the addresses of the memory. The vendor is read
// from the function, because the kernel's file does not change when it has left the bus.
//
//go:embed gpu.sh
var gpuScript string

type nodeGPU struct {
	pci         topology.PCIAddr
	ones        bool // configuration space reads all ones
	driver      string
	render      string // file of its driver: renderD128 in /dev/dri, or vfio/12 in /dev
	first, last uint64 // addresses of the memory
}

func (g *nodeGPU) size() uint64 { return g.last - g.first + 1 }

type nodeNIC struct {
	pci          topology.PCIAddr
	netdev, rdma string
}

type gpuNode struct {
	gpus    []nodeGPU
	nics    []nodeNIC
	choices []nicChoice
	tree    *topology.Tree
}

// parseGPUs requires the whole output.
func parseGPUs(out string) (*gpuNode, error) {
	n, h, whole := &gpuNode{}, &topology.Host{}, false
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		switch {
		case len(f) == 1 && f[0] == "end":
			whole = true
		case len(f) == 10 && f[0] == "gpu" && len(n.gpus) < maxFunctions:
			g := nodeGPU{ones: f[2] == "ffff", driver: f[3], render: f[4]}
			var errs [3]error
			g.pci, errs[0] = topology.ParsePCIAddr(f[1])
			g.first, errs[1] = strconv.ParseUint(f[5], 0, 64)
			g.last, errs[2] = strconv.ParseUint(f[6], 0, 64)
			for _, err := range errs {
				if err != nil {
					return nil, err
				}
			}
			if err := addPlace(h, f[9], f[8]); err != nil {
				return nil, err
			}
			n.gpus = append(n.gpus, g)
		case len(f) == 6 && f[0] == "nic" && len(n.nics) < maxFunctions:
			pci, err := topology.ParsePCIAddr(f[1])
			if err == nil {
				err = addPlace(h, f[5], f[4])
			}
			if err != nil {
				return nil, err
			}
			n.nics = append(n.nics, nodeNIC{pci, f[2], f[3]})
		case len(f) == 4 && f[0] == "choice" && len(n.choices) < maxChoices && choiceValue().MatchString(f[3]):
			n.choices = append(n.choices, nicChoice{f[1], f[2], f[3]})
		}
	}
	if !whole {
		return nil, fmt.Errorf("the list of PCI devices is not whole: %q", lastLine(out))
	}
	n.tree = topology.NewTree(h)
	return n, nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// addPlace adds a function and the bridges above it, from /sys/devices/pci0000:00/0000:00:02.0/0000:01:00.0.
func addPlace(h *topology.Host, dir, numa string) error {
	at := strings.LastIndex(dir, "/pci")
	if at < 0 {
		return fmt.Errorf("%s is not the directory of a PCI device", dir)
	}
	elements := strings.Split(dir[at+1:], "/")
	root := elements[0]
	var parent *topology.PCIAddr
	for i, e := range elements[1:] {
		a, err := topology.ParsePCIAddr(e)
		if err != nil {
			return err
		}
		d := topology.PCIDevice{Address: a, Parent: parent, Root: root}
		if node, err := strconv.Atoi(numa); err == nil && node >= 0 && i == len(elements)-2 {
			d.NUMANode = &node
		}
		parent = &a
		if !slices.ContainsFunc(h.PCI, func(d topology.PCIDevice) bool { return d.Address == a }) {
			h.PCI = append(h.PCI, d)
		}
	}
	return nil
}

type gpuState struct {
	GPU
	seen *nodeGPU
	node *gpuNode
}

// vfio reports whether the GPU is for vfio-pci.
func (s *gpuState) vfio() bool { return s.Personality == lab.PersonalityVFIO }

// memory returns the name of the GPU's memory for BytesProgram.
func (s *gpuState) memory() string {
	if s.vfio() {
		return "vfio:" + s.seen.pci.String()
	}
	return "drm:/dev/dri/" + s.seen.render
}

func (s *gpuState) subject() string { return fmt.Sprintf("%s gpu%d", s.Node, s.Number) }

func (s *gpuState) nic() *nodeNIC {
	return lists.Ref(s.node.nics, func(n *nodeNIC) bool { return n.netdev == s.Beside })
}

func seenGPUs(ctx context.Context, l *lab.Lab, r Reader, all []GPU) (states []gpuState, unread map[string]error) {
	nodes, errs := make([]*gpuNode, len(l.Nodes)), make([]error, len(l.Nodes))
	parallel(len(l.Nodes), func(i int) {
		name := l.Nodes[i].Name
		if !slices.ContainsFunc(all, func(g GPU) bool { return g.Node == name }) {
			return
		}
		out, err := r.Exec(ctx, name, []string{"sh", "-c", gpuScript})
		if err == nil && out.ExitCode != 0 {
			err = fmt.Errorf("exit status %d%s", out.ExitCode, said(out.Stderr))
		}
		if err == nil {
			nodes[i], err = parseGPUs(string(out.Stdout))
		}
		errs[i] = err
	})
	unread = make(map[string]error)
	for i, n := range l.Nodes {
		own := lists.Filter(all, func(g GPU) bool { return g.Node == n.Name })
		switch {
		case len(own) == 0:
		case errs[i] != nil:
			unread[n.Name] = errs[i]
		default:
			states = append(states, joinGPUs(own, nodes[i])...)
		}
	}
	return states, unread
}

// joinGPUs matches by the address of the memory, which the emulator knows too, and otherwise by order.
func joinGPUs(own []GPU, n *gpuNode) []gpuState {
	states := lists.Map(own, func(g GPU) gpuState { return gpuState{GPU: g, node: n} })
	left := make([]*nodeGPU, len(n.gpus))
	for i := range n.gpus {
		left[i] = &n.gpus[i]
	}
	take := func(s *gpuState, is func(g *nodeGPU) bool) {
		if i := slices.IndexFunc(left, is); s.seen == nil && i >= 0 {
			s.seen = left[i]
			left = slices.Delete(left, i, i+1)
		}
	}
	for i := range states {
		s := &states[i]
		take(s, func(g *nodeGPU) bool { return s.Address != 0 && g.first == s.Address })
	}
	for i := range states {
		take(&states[i], func(*nodeGPU) bool { return true })
	}
	return states
}
