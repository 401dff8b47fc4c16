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

// Meaning returns "" for an unknown name. docs/planner.md defines the terms.
func Meaning(term string) string { return meanings[term] }

var meanings = map[string]string{
	TermGPUNICPath:       "GPU-NIC distance (PIX=0 to SYS=4)",
	TermGPUNICMeasured:   "percents of bandwidth lost between GPUs and NICs, measured",
	TermGPUGPUPath:       "GPU-GPU distance (NVLink=0, PIX=0 to SYS=4)",
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

// Weights are in basis points: hundredths of a percent of the workload's key figure. They are never negative.
// docs/planner.md gives the evidence; a study's own figures replace them (plan --model).
type Weights struct {
	GPUNICPath     int64 `json:"gpu_nic_path"`     // per step of the path class of each pair
	GPUNICMeasured int64 `json:"gpu_nic_measured"` // per percent of measured loss, replacing GPUNICPath
	GPUGPUPath     int64 `json:"gpu_gpu_path"`     // per step of the path class of two GPUs
	// per unit of SLIT distance from a device to the nearest core
	DeviceNearest int64 `json:"device_nearest"`
	// The next six apply to a lab node as a whole. [Weights.Of] divides them by the number of averaged parts.
	DeviceDistance int64 `json:"device_distance"` // per unit of distance, mean over cores and devices
	// per unit of distance between devices, mean over cores, for cores missing from a NUMA node's share by devices
	DeviceShare int64 `json:"device_share"`
	// per unit of distance from a page to the nearest core, mean over pages
	MemoryDistance  int64 `json:"memory_distance"`
	MemoryBalance   int64 `json:"memory_balance"`   // if all pages are away from their cores
	CoreBalance     int64 `json:"core_balance"`     // if all cores are missing from an even split
	EfficiencyCores int64 `json:"efficiency_cores"` // if all cores are small
	NUMASpan        int64 `json:"numa_span"`        // per NUMA node with cores beyond the first
	// the same with guest_numa: off
	NUMASpanHidden int64 `json:"numa_span_hidden"`
	// per L3 cache shared with another lab node or with a tenant
	L3Shared         int64 `json:"l3_shared"`
	EmulatorDistance int64 `json:"emulator_distance"` // per unit of distance to a housekeeping core
	NICRate          int64 `json:"nic_rate"`          // per step of link rate below 100 Gb/s
	NICRDMA          int64 `json:"nic_rdma"`          // per NIC or VF without RDMA
	NICShared        int64 `json:"nic_shared"`        // per other lab node on the same port
	CardShared       int64 `json:"card_shared"`       // per other lab node on another port
	Unlinked         int64 `json:"unlinked"`          // per port that cannot be reached
	// per percent between the best and the worst placed of equal lab nodes
	Unequal int64 `json:"unequal"`
}

// DefaultWeights are published. Their evidence is in docs/planner.md.
func DefaultWeights(w lab.Workload) Weights {
	weights, ok := defaultWeights[w]
	if !ok {
		panic(fmt.Sprintf("plan: no weights for workload %q", w))
	}
	return weights
}

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

// mean rounds, but is at least 1 if the whole is positive.
func mean(whole, n int64) int64 {
	if whole == 0 || n <= 0 {
		return 0
	}
	return max(1, (whole+n/2)/n)
}

// NodeWeights divide means by their number of parts.
type NodeWeights struct {
	// DeviceNearest is to the nearest core, or to each core if Hidden.
	DeviceNearest  int64
	DeviceDistance int64
	// per core missing from the share of devices, and unit of distance
	DeviceShare     int64
	MemoryDistance  int64 // per unit from a page to the nearest core
	MemoryBalance   int64 // per page away from its share
	CoreBalance     int64 // per core missing from an even split
	EfficiencyCores int64 // per small core
	NUMASpan        int64
	// Hidden means that the guest does not see its NUMA nodes (guest_numa: off). It cannot put a program on the cores
	// near a device then, so that all cores count alike.
	Hidden bool
}

// PerCore is for a unit of distance from a core to a device in all terms.
func (n NodeWeights) PerCore() int64 {
	if n.Hidden {
		return n.DeviceNearest + n.DeviceDistance
	}
	return n.DeviceDistance
}

// Nearest is for a unit of distance from a device to the nearest core; 0 if Hidden.
func (n NodeWeights) Nearest() int64 {
	if n.Hidden {
		return 0
	}
	return n.DeviceNearest
}

// Of returns the weights for one request.
func (w Weights) Of(r *Request) NodeWeights {
	devices := int64(0)
	for _, wants := range [][]Want{r.GPUs, r.NICs, r.VFs} {
		devices += lists.Sum(wants, func(want Want) int64 { return int64(want.Count) })
	}
	cores := int64(r.Cores)
	n := NodeWeights{
		DeviceNearest:   w.DeviceNearest,
		DeviceDistance:  mean(w.DeviceDistance, cores*devices),
		DeviceShare:     mean(w.DeviceShare, cores*devices),
		MemoryDistance:  mean(w.MemoryDistance, r.Pages),
		MemoryBalance:   mean(w.MemoryBalance, r.Pages),
		CoreBalance:     mean(w.CoreBalance, cores),
		EfficiencyCores: mean(w.EfficiencyCores, cores),
		NUMASpan:        w.NUMASpan,
	}
	if r.GuestNUMA == "off" {
		n.Hidden, n.NUMASpan = true, w.NUMASpanHidden
		n.DeviceNearest = mean(w.DeviceNearest, cores)
		n.DeviceShare = mean(w.DeviceShare+2*w.DeviceNearest*devices, cores*devices)
	}
	return n
}

// RateSteps are 0 from 100 Gb/s, 1 from 25, 2 from 10, 3 from 1, 4 below that and if the link is down. An unknown rate
// counts 0, because it is no evidence against the NIC.
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
