package mend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/plan/render"
)

// A placement is a plan of one machine, as a lab of one node.
type placement struct {
	input render.Input
	cells bool // the guest gets the NUMA nodes of the plan

	vcpus  int             // of the machine
	absent topology.CPUSet // those of them that are not in the plan
}

// cpus returns the CPU of each virtual CPU of the machine, from those of the plan in order. Those that are not in the
// plan take turns on the same CPUs: then they disturb nobody else, and are near their memory.
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

// labName is the name of the file of that lab, which nobody sees, and minMemory the least that a node has.
const (
	labName   = "lab"
	minMemory = 256 << 20
)

// nodeName is what the machine is called in its lab.
const nodeName = "vm"

// plan finds the best place for the machine on the host, with the devices that it has. Where they cannot be given away
// the devices are the fault of other findings, and the machine is placed without them.
func (j *job) plan(ctx context.Context, cells bool, absent topology.CPUSet) (*placement, error) {
	var first error
	for _, devices := range []bool{true, false} {
		file, err := j.lab(cells, devices, absent.Len())
		if err != nil {
			return nil, err
		}
		l, err := lab.Parse(labName, []byte(file))
		if err != nil {
			why, _, _ := strings.Cut(err.Error(), "\n") // the rest shows lines of a file that nobody wrote
			return nil, fmt.Errorf("rackless cannot plan %s: %s", j.machine.Tenant.Name,
				strings.TrimPrefix(why, labName+":"))
		}
		q, err := planner.New(j.hostName, j.machine.File, l, "")
		if err != nil {
			return nil, err
		}
		r, err := q.Solve(ctx, j.host, l)
		if err == nil {
			return &placement{input: render.Input{Plan: r.Plan, Lab: r.Lab, Host: r.Host},
				cells: r.Plan.Nodes[0].GuestNUMA, vcpus: j.machine.Tenant.VCPUs, absent: absent}, nil
		}
		first = cmp.Or(first, err)
		if !planner.DoesNotFit(err) {
			break
		}
	}
	return nil, fmt.Errorf("no other place for %s: %w", j.machine.Tenant.Name, first)
}

// lab writes the machine as a lab file, without so many virtual CPUs that it has none of at the start.
func (j *job) lab(cells, withDevices bool, absent int) (string, error) {
	t := &j.machine.Tenant
	if t.VCPUs == 0 || t.MemoryBytes == nil {
		return "", errors.New("the description does not tell the number of virtual CPUs and the memory")
	}
	pages := "off"
	if t.Hugepages != nil {
		size := *t.Hugepages
		if size == 0 && j.host.Memory.DefaultHuge != nil {
			size = *j.host.Memory.DefaultHuge
		}
		pages = cmp.Or(map[uint64]string{1 << 30: "1GiB", 2 << 20: "2MiB"}[size], "auto")
	}
	smt, numa := "off", "off"
	if t.GuestThreads > 1 {
		smt = "on"
	}
	if cells {
		numa = "on"
	}
	node := []string{fmt.Sprintf("cpus: %d", t.VCPUs-absent),
		fmt.Sprintf("memory: %dMiB", max(*t.MemoryBytes, minMemory)>>20), "smt: " + smt, "guest_numa: " + numa}
	asked := map[string][]string{"gpus": nil, "nics": nil, "vfs": nil}
	for _, td := range t.Devices {
		d := j.host.Device(td.PCI)
		switch {
		case d == nil || !withDevices:
		case d.IsGPU():
			asked["gpus"] = append(asked["gpus"], d.Address.String())
		case d.IsNIC() && d.PF != nil:
			asked["vfs"] = append(asked["vfs"], d.PF.String())
		case d.IsNIC():
			asked["nics"] = append(asked["nics"], d.Address.String())
		}
	}
	for _, kind := range []string{"gpus", "nics", "vfs"} {
		if list := asked[kind]; len(list) > 0 {
			node = append(node, kind+`: ["`+strings.Join(list, `", "`)+`"]`)
		}
	}
	if len(asked["nics"]) == 0 {
		node = append(node, "nics: 0")
	}
	return fmt.Sprintf("name: check\nhugepages: %s\nnodes:\n  %s: {%s}\n", pages, nodeName,
		strings.Join(node, ", ")), nil
}
