package measure

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/prometheus/procfs"
	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/study/record"
)

// environment omits names and addresses of the host, because reports are passed on.
func environment(s *rack.State, samples []bench.Sample) []record.Fact {
	var out []record.Fact
	add := func(key, value string) {
		if value != "" {
			out = append(out, record.Fact{Key: key, Value: value})
		}
	}
	add("host CPU", cpuModel())
	add("host CPUs", strconv.Itoa(runtime.NumCPU()))
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		add("host kernel", unix.ByteSliceToString(u.Release[:]))
	}
	if load, err := loadAverage(); err == nil {
		add("host load", fmt.Sprintf("%.2f %.2f %.2f (1, 5, 15 minutes)", load.Load1, load.Load5, load.Load15))
	}
	add("QEMU", s.QEMU)
	accel := s.Accel
	if s.Emulate != "" {
		accel += " (no KVM: " + s.Emulate + ")"
	}
	if s.EmulatedHost {
		accel += " of an emulated host (rackless emulate)"
	}
	add("accelerator", accel)
	add("node kernel", s.Kernel)
	add("node image", s.Image)
	add(record.FactModelled, s.Lab.ModelledRates())
	var rdma []string
	for _, n := range s.Nodes {
		if n.Facts == nil {
			continue
		}
		// Its name does not tell that soft RoCE is software.
		for _, d := range n.Facts.RDMADevices() {
			what := d.Name
			if topology.IsSoftRDMA(d.Name) {
				what = "rdma_rxe, software RoCE v2"
			} else if i := slices.IndexFunc(s.Lab.Nodes, func(l lab.Node) bool { return l.Name == n.Name }); i >= 0 &&
				s.Lab.Nodes[i].ConnectX() {
				what += fmt.Sprintf(", emulated %s", s.Lab.Nodes[i].NIC.Title())
			}
			rdma = lists.Add(rdma, what)
		}
	}
	slices.Sort(rdma)
	add("RDMA device", strings.Join(rdma, ", "))
	var tools []string
	for _, m := range samples {
		if t := m.Tool + " " + m.Version; m.Version != "" && !slices.Contains(tools, t) {
			tools = append(tools, t)
		}
	}
	add("tools", strings.Join(tools, ", "))
	// Other packages of the image do not affect figures.
	for _, p := range s.Package {
		if strings.HasPrefix(p, "perftest=") || strings.HasPrefix(p, "ibverbs-providers=") ||
			strings.HasPrefix(p, "linux-image-") {
			add("package", p)
		}
	}
	return out
}

func cpuModel() string {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return ""
	}
	cpus, err := proc.CPUInfo()
	if err != nil || len(cpus) == 0 {
		return ""
	}
	return cpus[0].ModelName
}

func loadAverage() (*procfs.LoadAvg, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	return proc.LoadAvg()
}
