package plan

import (
	"fmt"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
)

// Names of the terms of the cost.
const (
	TermGPUNICPath       = "gpu_nic_path"
	TermGPUNICMeasured   = "gpu_nic_measured"
	TermGPUGPUPath       = "gpu_gpu_path"
	TermDeviceNearest    = "device_nearest"
	TermDeviceDistance   = "device_distance"
	TermDeviceShare      = "device_share"
	TermMemoryDistance   = "memory_distance"
	TermMemoryBalance    = "memory_balance"
	TermCoreBalance      = "core_balance"
	TermNUMASpan         = "numa_span"
	TermL3Shared         = "l3_shared"
	TermEmulatorDistance = "emulator_distance"
	TermEfficiencyCores  = "efficiency_cores"
	TermNICRate          = "nic_rate"
	TermNICRDMA          = "nic_rdma"
	TermNICShared        = "nic_shared"
	TermCardShared       = "card_shared"
	TermUnlinked         = "unlinked"
	TermUnequal          = "unequal"
)

// Meaning says in a few words what a term counts; it is empty for a name that is not known.
// docs/planner.md defines them.
func Meaning(term string) string { return meanings[term] }

var meanings = map[string]string{
	TermGPUNICPath:       "steps of path between GPUs and NICs",
	TermGPUNICMeasured:   "percents of bandwidth lost between GPUs and NICs, measured",
	TermGPUGPUPath:       "steps of path between GPUs",
	TermDeviceNearest:    "distance from devices to the nearest core",
	TermDeviceDistance:   "distance from devices to all cores",
	TermDeviceShare:      "cores that are not beside their share of devices, by distance",
	TermMemoryDistance:   "distance from memory to the nearest core",
	TermMemoryBalance:    "pages that are not beside their share of cores",
	TermCoreBalance:      "cores missing from an even split over NUMA nodes",
	TermNUMASpan:         "NUMA nodes beyond the first",
	TermL3Shared:         "L3 caches shared with others",
	TermEmulatorDistance: "distance to the CPUs of QEMU's own threads",
	TermEfficiencyCores:  "small cores",
	TermNICRate:          "steps of link rate below 100 Gb/s",
	TermNICRDMA:          "ports without RDMA",
	TermNICShared:        "other lab nodes on the same port",
	TermCardShared:       "other lab nodes on another port of the same card",
	TermUnlinked:         "ports of other lab nodes that no link reaches",
	TermUnequal:          "percents between the best and the worst placed of equal lab nodes",
}

// Weights say what each shortcoming costs, in basis points: hundredths of a percent of the figure
// that matters to the workload, as far as measurements say. They are never negative.
// docs/planner.md names the evidence of each. A study's own figures replace them (plan --model).
type Weights struct {
	GPUNICPath     int64 `json:"gpu_nic_path"`     // a step of the path class, for each pair (see Evaluate)
	GPUNICMeasured int64 `json:"gpu_nic_measured"` // a percent of measured loss, in place of GPUNICPath
	GPUGPUPath     int64 `json:"gpu_gpu_path"`     // a step of the path class, for each two GPUs of a lab node
	// a unit of SLIT distance from a device to the nearest core of its lab node
	DeviceNearest int64 `json:"device_nearest"`
	// The next six are of a lab node as a whole; [Weights.Of] divides them by what they are averaged over.
	DeviceDistance int64 `json:"device_distance"` // a unit of distance, mean over cores and devices
	// a unit of distance between devices, mean over cores: those missing from the share of devices on a NUMA node
	DeviceShare int64 `json:"device_share"`
	// a unit of distance from a page to the nearest core, mean over pages
	MemoryDistance  int64 `json:"memory_distance"`
	MemoryBalance   int64 `json:"memory_balance"`   // all pages away from the cores that they are the share of
	CoreBalance     int64 `json:"core_balance"`     // all cores are missing from an even split over NUMA nodes
	EfficiencyCores int64 `json:"efficiency_cores"` // all cores are small ones
	NUMASpan        int64 `json:"numa_span"`        // each NUMA node with cores beyond the first
	// the same where the guest must not see its NUMA nodes (guest_numa: off)
	NUMASpanHidden int64 `json:"numa_span_hidden"`
	// each L3 cache that a lab node shares with another or with a tenant
	L3Shared         int64 `json:"l3_shared"`
	EmulatorDistance int64 `json:"emulator_distance"` // a unit of distance from the nearest core to a housekeeping core
	NICRate          int64 `json:"nic_rate"`          // a step of link rate below 100 Gb/s, see Device.RateSteps
	NICRDMA          int64 `json:"nic_rdma"`          // a NIC or VF without RDMA
	NICShared        int64 `json:"nic_shared"`        // each other lab node on the same port
	CardShared       int64 `json:"card_shared"`       // each other lab node on another port of the card
	Unlinked         int64 `json:"unlinked"`          // each port of another lab node that is not reached
	// a percent between the best and the worst placed of equal lab nodes
	Unequal int64 `json:"unequal"`
}

// DefaultWeights returns the published weights for a workload. Their evidence is in docs/planner.md.
func DefaultWeights(w lab.Workload) Weights {
	weights, ok := defaultWeights[w]
	if !ok {
		panic(fmt.Sprintf("plan: no weights for workload %q", w))
	}
	return weights
}

// defaultWeights are in the order of the fields.
var defaultWeights = map[lab.Workload]Weights{
	lab.WorkloadRDMALatency: {300, 30, 10, 480, 216, 432, 150, 500, 0, 5000, 300, 1200, 100, 30, 200, 5000, 200, 100,
		20000, 10},
	lab.WorkloadRDMABandwidth: {600, 60, 10, 100, 50, 100, 150, 1000, 0, 5000, 100, 400, 50, 20, 400, 5000, 1000, 500,
		20000, 10},
	lab.WorkloadGPUCompute: {100, 10, 100, 50, 20, 40, 100, 500, 0, 5000, 50, 50, 50, 10, 50, 1000, 50, 25, 20000,
		10},
	lab.WorkloadGPUCollective: {900, 100, 400, 100, 50, 100, 150, 1000, 0, 5000, 100, 100, 50, 10, 400, 5000, 500, 250,
		20000, 50},
	lab.WorkloadCPUBandwidth: {50, 5, 10, 20, 20, 40, 900, 4000, 2000, 5000, 50, 2000, 200, 10, 50, 500, 50, 25, 20000,
		10},
	lab.WorkloadMixed: {600, 60, 150, 200, 100, 200, 300, 1000, 0, 5000, 200, 800, 100, 20, 200, 2000, 300, 150,
		20000, 10},
}

// mean returns the weight of one of n equal parts, rounded, at least 1 where the whole weighs anything.
func mean(whole, n int64) int64 {
	if whole == 0 || n <= 0 {
		return 0
	}
	return max(1, (whole+n/2)/n)
}

// NodeWeights are the weights of the terms of one lab node: means are divided by what they are taken over.
type NodeWeights struct {
	DeviceDistance int64 // a core's unit of distance to a device
	// a core's and a device's unit of distance, where the core is missing from the share of devices
	DeviceShare     int64
	MemoryDistance  int64 // a page's unit of distance to the nearest core
	MemoryBalance   int64 // a page away from its share
	CoreBalance     int64 // a core missing from an even split
	EfficiencyCores int64 // a small core
	NUMASpan        int64 // a NUMA node beyond the first
}

// Of returns the weights for the lab node that r asks for.
func (w Weights) Of(r *Request) NodeWeights {
	devices := int64(0)
	for _, wants := range [][]Want{r.GPUs, r.NICs, r.VFs} {
		devices += lists.Sum(wants, func(want Want) int64 { return int64(want.Count) })
	}
	cores := int64(r.Cores)
	n := NodeWeights{
		DeviceDistance:  mean(w.DeviceDistance, cores*devices),
		DeviceShare:     mean(w.DeviceShare, cores*devices),
		MemoryDistance:  mean(w.MemoryDistance, r.Pages),
		MemoryBalance:   mean(w.MemoryBalance, r.Pages),
		CoreBalance:     mean(w.CoreBalance, cores),
		EfficiencyCores: mean(w.EfficiencyCores, cores),
		NUMASpan:        w.NUMASpan,
	}
	if r.GuestNUMA == "off" {
		n.NUMASpan = w.NUMASpanHidden
	}
	return n
}

// RateSteps returns how far the link of a NIC is below 100 Gb/s: 0 from 100 Gb/s, 1 from 25, 2 from
// 10, 3 from 1, 4 below and where it is down. A rate that is not known counts 0: nothing speaks
// against the NIC.
func (d *Device) RateSteps() int64 {
	switch mbps := d.RateMbps; {
	case mbps >= 100_000 || d.RateUnknown:
		return 0
	case mbps >= 25_000:
		return 1
	case mbps >= 10_000:
		return 2
	case mbps >= 1000:
		return 3
	}
	return 4
}
