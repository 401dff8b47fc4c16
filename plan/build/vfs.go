package build

import (
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// assumedVFs is a firmware setting of a ConnectX (NUM_OF_VFS). NVIDIA's guides set 8.
const assumedVFs = 8

// countVFs keeps the index of functions held by tenants, because it must not change for a running tenant.
func (b *problemBuilder) countVFs() {
	wanted := b.wantsDevices(plan.KindVF)
	mates := b.groupMates()
	var assumed []string
	for i := range b.p.Devices {
		d, f := &b.p.Devices[i], &b.facts[i]
		if d.Kind != plan.KindNIC {
			continue
		}
		total := totalVFs(f.sriov)
		if f.addr != nil {
			f.vfs = b.virtual[*f.addr]
			if why, ok := b.blocked[*f.addr]; ok {
				f.noVFsReason = why
				continue
			}
		} else if f.sriov == nil && slices.ContainsFunc(f.names, isMLX5) {
			total = assumedVFs
			assumed = append(assumed, words.Plain(d.ID))
		}
		taken := map[int]bool{}
		for _, vf := range f.vfs {
			total = max(total, vf.index+1) // regardless of the firmware's number
			if _, used := b.uses[vf.addr]; used {
				taken[vf.index] = true
			}
			if group, shared := mates[vf.addr]; shared && wanted {
				b.note("NIC %s: its virtual functions share IOMMU group %d with other functions: they may not go to "+
					"different lab nodes", d.ID, group)
			}
		}
		held := 0
		if f.addr != nil {
			held = b.heldVFs[*f.addr]
		}
		for index := range total {
			switch {
			case taken[index]:
			case held > 0: // any of them
				held--
			default:
				d.FreeVFs = append(d.FreeVFs, index)
			}
		}
		d.VFs = len(d.FreeVFs)
	}
	if wanted && len(assumed) > 0 {
		b.note("the host does not tell how many virtual functions its NICs have: %d assumed for each whose RDMA "+
			"device is one of mlx5 (%s); the number is a setting of the firmware (NUM_OF_VFS)", assumedVFs,
			listText(assumed))
	}
}

func isMLX5(device string) bool { return strings.HasPrefix(device, "mlx5_") }

// totalVFs is the firmware's number, or the existing ones if that is unknown.
func totalVFs(s *topology.SRIOV) int {
	if s == nil {
		return 0
	}
	total := len(s.VFs)
	if s.Total != nil {
		total = max(total, *s.Total)
	}
	return min(total, MaxNICVFs)
}

// virtualFunctions also returns possible ones: a tenant that is shut off may hold one. Function n is at the routing ID
// of its physical function plus offset plus n times stride (PCI Express Base Specification, 9.2.1.2).
func virtualFunctions(pf topology.PCIAddr, s *topology.SRIOV) []vfFunction {
	if s == nil {
		return nil
	}
	var out []vfFunction
	known := map[int]bool{}
	for _, vf := range s.VFs {
		if vf.Address != nil && vf.Index >= 0 && vf.Index < MaxNICVFs && !known[vf.Index] {
			known[vf.Index] = true
			out = append(out, vfFunction{vf.Index, *vf.Address})
		}
	}
	if s.Offset == nil || s.Stride == nil || *s.Offset <= 0 || *s.Stride <= 0 {
		return out
	}
	const routingIDs = 1 << 16 // bus, device and function
	first := int(pf.Bus)<<8 | int(pf.Device)<<3 | int(pf.Function)
	for index := range totalVFs(s) {
		if *s.Offset >= routingIDs || *s.Stride >= routingIDs {
			break
		}
		id := first + *s.Offset + index**s.Stride
		if id >= routingIDs {
			break
		}
		if !known[index] {
			out = append(out, vfFunction{index, topology.PCIAddr{
				Domain: pf.Domain, Bus: uint8(id >> 8), Device: uint8(id >> 3 & 0x1f), Function: uint8(id & 7)}})
		}
	}
	return out
}

// groupMates does not count bridges.
func (b *problemBuilder) groupMates() map[topology.PCIAddr]int {
	first := map[int]topology.PCIAddr{}
	mates := map[topology.PCIAddr]int{}
	for _, d := range b.host.PCI {
		if d.IOMMUGroup == nil || d.IsBridge() {
			continue
		}
		group := *d.IOMMUGroup
		other, shared := first[group]
		if !shared {
			first[group] = d.Address
			continue
		}
		mates[d.Address], mates[other] = group, group
	}
	return mates
}
