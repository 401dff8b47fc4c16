package appraise

import (
	"fmt"
	"strconv"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
)

func (m *machine) nearNICs(f *Figure) {
	for i := range f.Remarks {
		r := &f.Remarks[i]
		g := m.busGPU(r.FarGPU)
		if r.FarGPU == "" || g == nil {
			continue
		}
		var names []string
		nearest := topology.PathSYS
		for j := range m.NICs {
			n := &m.NICs[j]
			class := m.tree.Path(g.ID(), n.ID()).Class
			if n.PF != nil || class == topology.PathUnknown || class >= topology.PathSYS || class > nearest {
				continue
			}
			if class < nearest {
				nearest, names = class, nil
			}
			name := n.ID()
			if len(n.RDMA) > 0 {
				name = n.RDMA[0]
			}
			names = append(names, name)
		}
		if names != nil {
			r.Fix += fmt.Sprintf("; nearest to %s of this machine (%s): %s", g.ID(), nearest, words.Few(names, 8, ", "))
		}
	}
}

// busGPU finds a GPU as NCCL prints it: hexadecimal digits without leading zeros. A machine with one GPU need not tell
// its address; some releases print ranks or indexes, which are small numbers.
func (m *machine) busGPU(bus string) *topology.GPU {
	n, err := strconv.ParseUint(bus, 16, 48)
	if err != nil {
		return nil
	}
	at := topology.PCIAddr{Domain: uint32(n >> 20), Bus: uint8(n >> 12), Device: uint8(n >> 4), Function: uint8(n & 15)}
	for i := range m.GPUs {
		g := &m.GPUs[i]
		if len(m.GPUs) == 1 && g.Address == nil || n >= 1<<12 && g.Address != nil && *g.Address == at {
			return g
		}
	}
	return nil
}
