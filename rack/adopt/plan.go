package adopt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/plan/render"
)

// A placement is a plan of one machine, as a lab of one node.
type placement struct {
	input render.Input
	cells bool // in the guest

	vcpus  int             // of the machine
	absent topology.CPUSet // not in the plan
}

// cpus returns the CPU of each virtual CPU. Those not in the plan share the planned CPUs in turn, to disturb only the
// machine itself and stay near its memory.
func (p *placement) cpus() []int {
	planned := p.input.Plan.Nodes[0].VCPUs
	cpus := make([]int, p.vcpus)
	present, absent := 0, 0
	for v := range cpus {
		next := &present
		if p.absent.Contains(v) {
			next = &absent
		}
		cpus[v] = planned[*next%len(planned)]
		*next++
	}
	return cpus
}

const nodeName = "vm"

type shape struct {
	cells    bool            // the guest gets NUMA nodes
	siblings bool            // threads of one core, even if the guest sees none
	absent   topology.CPUSet // get no CPUs of their own
}

// plan finds the best place. Devices that cannot be passed through have other findings, and are left out.
func (j *job) plan(ctx context.Context, s shape) (*placement, error) {
	var first error
	for _, try := range []struct {
		host    *topology.Host
		devices bool
	}{{j.withHugepages(), true}, {j.host, true}, {j.host, false}} {
		if try.host == nil {
			continue
		}
		l, err := j.lab(s, try.devices)
		if err != nil {
			return nil, err
		}
		if try.host != j.host {
			l.Reserve.Memory = new(lab.Bytes(0))
		}
		q, err := planner.New(j.hostName, j.machine.File, l, "")
		if err != nil {
			return nil, err
		}
		r, err := q.Solve(ctx, try.host, l)
		if err == nil {
			return &placement{input: render.Input{Plan: r.Plan, Lab: r.Lab, Host: r.Host},
				cells: r.Plan.Nodes[0].GuestNUMA, vcpus: j.machine.Tenant.VCPUs, absent: s.absent}, nil
		}
		other := !planner.DoesNotFit(err)
		if try.host == j.host || other {
			first = cmp.Or(first, err)
		}
		if other {
			break
		}
	}
	return nil, fmt.Errorf("no other place for %s: %w", j.machine.Tenant.Name, first)
}

// withHugepages returns the host with the memory of hugepages alone, because pages that are set aside now need no
// reboot. It returns nil if the machine has none, or the host none of their size.
func (j *job) withHugepages() *topology.Host {
	size := j.pageSize()
	if size == 0 {
		return nil
	}
	h := *j.host
	h.NUMANodes = slices.Clone(h.NUMANodes)
	some := false
	for i := range h.NUMANodes {
		n := &h.NUMANodes[i]
		bytes := uint64(0)
		for _, pool := range n.Hugepages {
			if pool.SizeBytes == size && pool.Total < 1<<32 {
				bytes = pool.Total * size
			}
		}
		some = some || bytes > 0
		n.MemoryBytes = &bytes
	}
	if !some {
		return nil
	}
	return &h
}

func (j *job) pageSize() uint64 {
	t := &j.machine.Tenant
	if t.Hugepages == nil {
		return 0
	}
	size := *t.Hugepages
	if size == 0 && j.host.Memory.DefaultHuge != nil {
		size = *j.host.Memory.DefaultHuge
	}
	return size
}

// lab leaves out virtual CPUs that are absent at the start.
func (j *job) lab(s shape, withDevices bool) (*lab.Lab, error) {
	t := &j.machine.Tenant
	switch {
	case t.VCPUs == 0 && t.MemoryBytes == nil:
		return nil, errors.New("the description does not tell the number of virtual CPUs and the memory")
	case t.VCPUs == 0:
		return nil, errors.New("the description does not tell the number of virtual CPUs")
	case t.MemoryBytes == nil:
		return nil, errors.New("the description does not tell the memory")
	}
	memory := lab.Bytes(max(*t.MemoryBytes, uint64(lab.MinMemory))) / lab.MiB * lab.MiB
	pages, page := lab.HugepagesOff, lab.MiB
	if t.Hugepages != nil {
		switch lab.Bytes(j.pageSize()) {
		case lab.GiB:
			pages, page = lab.Hugepages1GiB, lab.GiB
		case 2 * lab.MiB:
			pages, page = lab.Hugepages2MiB, 2*lab.MiB
		default:
			pages = lab.HugepagesAuto
		}
	}
	if memory%page != 0 {
		return nil, fmt.Errorf("rackless cannot plan %s: its memory, %s, is not whole pages of %s", t.Name, memory,
			page)
	}
	node := lab.Node{Name: nodeName, CPUs: t.VCPUs - s.absent.Len(), Memory: memory, Image: lab.DefaultImage,
		NIC: lab.DefaultNIC, SMT: lab.Off, GuestNUMA: lab.Off}
	if t.GuestThreads > 1 || s.siblings {
		node.SMT = lab.On
	}
	if s.cells {
		node.GuestNUMA = lab.On
	}
	for _, td := range t.Devices {
		d := j.host.Device(td.PCI)
		switch {
		case d == nil || !withDevices:
		case d.IsGPU():
			node.GPURequests = append(node.GPURequests, one(d.Address))
		case d.IsNIC() && d.PF != nil:
			node.VFRequests = append(node.VFRequests, one(*d.PF))
		case d.IsNIC():
			node.NICRequests = append(node.NICRequests, one(d.Address))
		}
	}
	node.GPUs, node.VFs = len(node.GPURequests), len(node.VFRequests)
	node.NICs = make([]lab.NIC, len(node.NICRequests)+node.VFs)
	l := &lab.Lab{Name: "check", Driver: lab.DefaultDriver, Workload: lab.DefaultWorkload,
		Fabric: lab.Fabric{MTU: lab.DefaultMTU, Subnet: netip.MustParsePrefix(lab.DefaultSubnet)},
		Nodes:  []lab.Node{node}, Hugepages: pages, Tenants: lab.DefaultTenants}
	l.Connect()
	return l, nil
}

func one(address topology.PCIAddr) lab.DeviceRequest {
	return lab.DeviceRequest{Count: 1, Address: address.String()}
}
