package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// A nicChoice is a setting in a file of the node that chooses which NICs programs use.
type nicChoice struct{ file, variable, value string }

const maxChoices = 8

// choiceValue leaves out values that are no names of devices.
var choiceValue = lazyregexp.New(`^[A-Za-z0-9_.:,=^-]{1,128}$`)

func (c nicChoice) String() string { return fmt.Sprintf("%s=%s in %s", c.variable, c.value, c.file) }

// has reports whether the setting leaves an RDMA device to programs. Both variables take a list of NAME or NAME:PORT,
// and ^ before it for all but these. Names are whole for UCX, and for NCCL after =; otherwise NCCL takes prefixes.
func (c nicChoice) has(device string) bool {
	list, except := strings.CutPrefix(c.value, "^")
	list, whole := strings.CutPrefix(list, "=")
	whole = whole || c.variable == "UCX_NET_DEVICES"
	listed := slices.ContainsFunc(strings.Split(list, ","), func(name string) bool {
		name, _, _ = strings.Cut(name, ":")
		return name == device || !whole && name != "" && strings.HasPrefix(device, name) || whole && name == "all"
	})
	return listed != except
}

// choosesFarNIC returns what is wrong with the first setting that leaves programs only NICs that are farther from the
// GPU than another one, or "".
func (s *gpuState) choosesFarNIC() string {
	nics := lists.Filter(s.node.nics, func(n nodeNIC) bool { return n.rdma != "-" })
	nearest, path := s.nearest(nics)
	if path == topology.PathUnknown {
		return ""
	}
	for _, c := range s.node.choices {
		left := lists.Filter(nics, func(n nodeNIC) bool { return c.has(n.rdma) })
		chosen, far := s.nearest(left)
		switch {
		case len(left) == 0:
			return fmt.Sprintf("%s leaves no RDMA device of the node", c)
		case far > path:
			return fmt.Sprintf("%s leaves %s (%s), and %s is nearer (%s)", c, chosen, far, nearest, path)
		}
	}
	return ""
}

// nearest returns the first of the NICs on the shortest known path.
func (s *gpuState) nearest(nics []nodeNIC) (device string, path topology.PathClass) {
	for _, n := range nics {
		if p := s.node.tree.Between(s.seen.pci, n.pci); p != topology.PathUnknown &&
			(path == topology.PathUnknown || p < path) {
			device, path = n.rdma, p
		}
	}
	return device, path
}
