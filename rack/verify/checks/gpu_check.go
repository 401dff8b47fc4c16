package checks

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

type gpuCheck struct {
	id, want    string
	fails       func(s *gpuState) string
	where       string // evidence in the node
	consequence string
	fix         string
}

const fixGPUNode = "rackless down and up start the node with the GPUs of its lab file"

// gpuChecks are in order of dependency, and a GPU fails only the first.
var gpuChecks = []gpuCheck{
	{IDGPU, "connected, with memory behind a BAR", func(s *gpuState) string {
		switch {
		case !s.Connected:
			return "the node has lost it, as the lab's daemon ended or the connection to it"
		case s.seen == nil:
			return fmt.Sprintf("the node sees %s, and this one is missing", words.Count(len(s.node.gpus), "GPU"))
		}
		return ""
	}, "lspci -d ::0302", "programs in the node do not find the GPU", fixGPUNode},
	{IDGPUBus, "answers", func(s *gpuState) string {
		if s.Fault == GPULost || s.seen.ones {
			return "all reads give ones: it is lost, and NICs do not reach its memory"
		}
		return ""
	}, "configuration space",
		"programs that ask the GPU for something wait until it is back; RDMA to its memory ends " +
			"with errors", fixGPUNode},
	{IDGPUDriver, "virtio_gpu, or vfio-pci for the personality vfio, and the GPU is set up", func(s *gpuState) string {
		driver, want, file := s.seen.driver, "virtio_gpu", "a node in /dev/dri"
		if s.vfio() {
			want, file = "vfio-pci", "a group in /dev/vfio"
		}
		if driver == "-" {
			driver = "no driver"
		}
		switch {
		case driver != want:
			return driver
		case s.seen.render == "-":
			return want + ", without " + file
		case s.Broken:
			return "virtio_gpu has violated the specification, and the GPU waits for a reset"
		case !s.Driver:
			return want + ", and the daemon says that it has not set the GPU up"
		}
		return ""
	}, "/sys/bus/pci/devices, /dev/dri, /dev/vfio", "no program can allocate memory of the GPU",
		"in the node: modprobe virtio_gpu; " +
			"the kernel argument nomodeset keeps it away, see dmesg"},
	{IDGPUMemory, "that of the lab file, where the daemon has it", func(s *gpuState) string {
		switch {
		case s.seen.size() != s.Memory:
			return words.Bytes(s.seen.size()) + " and not " + words.Bytes(s.Memory)
		case s.seen.first != s.Address:
			return fmt.Sprintf("at %#x, and the daemon has it at %#x", s.seen.first, s.Address)
		}
		return ""
	}, "/sys/bus/pci/devices/*/resource", "NICs do not find the memory that programs export", fixGPUNode},
	{IDGPUPath, "as in the lab file", func(s *gpuState) string {
		nic := s.nic()
		if nic == nil || s.Path == topology.PathUnknown {
			return ""
		}
		if got := s.node.tree.Between(s.seen.pci, nic.pci); got != s.Path && got != topology.PathUnknown {
			return fmt.Sprintf("%s to %s, and not %s", got, s.Beside, s.Path)
		}
		return ""
	}, "/sys/bus/pci/devices, nvidia-smi topo -m", "programs choose another NIC for the GPU than the lab file says",
		fixGPUNode},
	{IDGPUNIC, "no setting keeps programs from the nearest NIC", (*gpuState).choosesFarNIC,
		"/etc/nccl.conf, /etc/environment, /sys/bus/pci/devices",
		"programs move the GPU's memory by a longer path, which on hardware costs bandwidth",
		"in the node: name the nearest NIC, which nvidia-smi topo -m shows, or remove the setting"},
}

func gpus(ctx context.Context, l *lab.Lab, r Reader, known []finding.Finding, bytes bool) []finding.Finding {
	from, ok := r.(GPUReader)
	if !ok {
		return nil
	}
	all, err := from.GPUs(ctx)
	if err != nil && ctx.Err() == nil {
		return []finding.Finding{{ID: IDGPU, Subject: "lab " + l.Name, Status: finding.Failed, Want: gpuChecks[0].want,
			Have: err.Error(), Evidence: "rackless gpu ls", Consequence: gpuChecks[0].consequence,
			Fix: "rackless up with the lab's file starts the daemon and the nodes again"}}
	}
	states, silent := seenGPUs(ctx, l, r, all)
	var out []finding.Finding
	for _, n := range l.Nodes {
		if err := silent[n.Name]; err != nil {
			out = append(out, unread(IDGPU, n.Name, "", "in the node: "+gpuChecks[0].where, err.Error(),
				"rackless ls shows whether the node runs"))
		}
	}
	found, failed := judgeGPUs(l, states)
	out = append(out, found...)
	if bytes {
		good := slices.DeleteFunc(states, func(s gpuState) bool { return failed[s.subject()] })
		out = append(out, gpuBytes(ctx, l, good, slices.Concat(known, out), r)...)
	}
	return out
}

// judgeGPUs returns one finding for each check that all GPUs with no earlier failure pass, and one for each failure.
// The evidence comes from the node, and the cause from the emulation.
func judgeGPUs(l *lab.Lab, all []gpuState) (out []finding.Finding, failed map[string]bool) {
	failed = make(map[string]bool)
	for _, c := range gpuChecks {
		var good []gpuState
		for i := range all {
			s := &all[i]
			if failed[s.subject()] {
				continue
			}
			have := c.fails(s)
			if have == "" {
				good = append(good, *s)
				continue
			}
			failed[s.subject()] = true
			out = append(out, finding.Finding{ID: c.id, Subject: s.subject(), Status: finding.Failed, Have: have,
				Want: c.want, Consequence: c.consequence, Evidence: "in the node: " + c.where +
					"; cause, by rackless " +
					"gpu ls: " + s.text(), Fix: cmp.Or(s.clear(l), s.driverFix(c.id), c.fix)})
		}
		if !slices.ContainsFunc(out, func(f finding.Finding) bool { return f.ID == c.id }) && len(good) > 0 {
			have := words.Count(len(good), "GPU")
			if c.id == IDGPUPath {
				have += ": " + paths(good)
			}
			out = append(out, finding.Finding{ID: c.id, Subject: "lab " + l.Name, Status: finding.OK, Have: have,
				Want: c.want, Evidence: "in the nodes: " + c.where})
		}
	}
	return out, failed
}

// driverFix returns the advice for a GPU without vfio-pci, or "" for other faults and GPUs.
func (s *gpuState) driverFix(id string) string {
	if id != IDGPUDriver || !s.vfio() {
		return ""
	}
	return "in the node: modprobe vfio-pci; it takes a GPU only in a node with an IOMMU, see dmesg"
}

func paths(all []gpuState) string {
	count := map[topology.PathClass]int{}
	for _, s := range all {
		count[s.Path]++
	}
	var out []string
	for class := topology.PathPIX; class <= topology.PathSYS; class++ {
		if n := count[class]; n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, class))
		}
	}
	return strings.Join(out, ", ")
}

func (s *gpuState) text() string {
	fault := "no fault"
	if s.Fault != "" {
		fault = "fault " + string(s.Fault)
	}
	driver := "no driver"
	if s.Driver {
		driver = "driver ready"
	}
	return fault + ", " + driver
}

func (s *gpuState) clear(l *lab.Lab) string {
	switch {
	case s.Fault == "":
		return ""
	case s.Number > 0:
		return fmt.Sprintf("rackless gpu fault %s/%s --gpu %d --clear", l.Name, s.Node, s.Number)
	}
	return fmt.Sprintf("rackless gpu fault %s/%s --clear", l.Name, s.Node)
}
