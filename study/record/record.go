// Package record holds what is kept of a measurement of a lab. Package study/results stores it, and package report
// shows it.
package record

import (
	"slices"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/expect"
	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/study/stats"
)

// Record is everything that a report shows. Every field may be empty.
type Record struct {
	Lab       string            `json:"lab"`
	Title     string            `json:"title,omitempty"` // default: "Lab NAME"
	Generated time.Time         `json:"generated"`       // printed in UTC
	Rackless  string            `json:"rackless"`        // version of rackless
	Nodes     []Node            `json:"nodes"`           // in the order of rows and pairs
	Findings  []finding.Finding `json:"findings,omitempty"`
	Samples   []bench.Sample    `json:"samples,omitempty"`
	// Judgements compare bandwidths with limits of paths, Beside latencies with published ones. Results of earlier
	// releases have neither.
	Judgements []expect.Judgement           `json:"expectations,omitempty"`
	Beside     []expect.PublishedComparison `json:"published,omitempty"`
	// Distributions summarize the individual latencies.
	Distributions []Distribution `json:"latency_distributions,omitempty"`
	Environment   []Fact         `json:"environment,omitempty"` // printed in this order
	GPUPaths      []GPUPath      `json:"gpu_paths,omitempty"`   // of tests that name a NIC
	// Disturbed is a sentence if other programs kept the machine busy before or after the measurement. Unmeasured noise
	// floors are nil.
	Disturbed   string      `json:"disturbed,omitempty"`
	NoiseBefore *NoiseFloor `json:"noise_before,omitempty"`
	NoiseAfter  *NoiseFloor `json:"noise_after,omitempty"`
	// HostPicture is an SVG document, as from "rackless inspect -o svg", or "".
	HostPicture string `json:"host_picture,omitempty"`
	Emulated    bool   `json:"emulated"` // the whole lab; a Sample may be marked too
	// EmulatedHost is set if KVM was emulated too.
	EmulatedHost bool `json:"emulated_host,omitempty"`
	// NoSwitch is set for nodes on the host's own NICs.
	NoSwitch bool `json:"-"`
}

// A GPUPath is the PCIe path between a GPU and a NIC of a node.
type GPUPath struct {
	Node string `json:"node"`
	GPU  int    `json:"gpu"`  // as CUDA counts, from 0
	NIC  int    `json:"nic"`  // of the node, from 0
	Name string `json:"name"` // "eth0, mlx5_0"
	// as in nvidia-smi topo: "PIX"; "" if unknown
	Path string `json:"path,omitempty"`
	// ModelledBits is the profile's rate in bits per second, or 0.
	ModelledBits int64 `json:"modelled_bits,omitempty"`
}

// A Node is one machine of the lab.
type Node struct {
	Name        string `json:"name"`
	Address     string `json:"address,omitempty"` // with prefix length: "10.77.0.10/24"
	MAC         string `json:"mac,omitempty"`
	RDMADevice  string `json:"rdma_device,omitempty"` // "rxe0", or empty
	GIDIndex    int    `json:"gid_index"`             // of the RoCE v2 address
	MTU         int    `json:"mtu,omitempty"`         // in bytes
	IBMTU       int    `json:"ib_mtu,omitempty"`      // active, in bytes
	CPUs        int    `json:"cpus,omitempty"`
	Memory      int64  `json:"memory,omitempty"`      // bytes
	Accelerator string `json:"accelerator,omitempty"` // "kvm" or "tcg"
	Driver      string `json:"driver,omitempty"`      // such as "qemu"
	// The following fields are of a running node, for pictures.
	State string `json:"-"` // shown instead of the MAC
	Off   bool   `json:"-"` // not running as it should
	Wires []Wire `json:"-"` // nil: one, without details
}

// A Wire is a link from a NIC of a running node to the switch.
type Wire struct {
	Text           string
	Down, Impaired bool
	Note           string // a fault, shown in the node's box
}

// A NoiseFloor is the use of a machine by others while the lab was idle.
type NoiseFloor struct {
	CPUs   int     `json:"cpus"`       // of the machine
	Others float64 `json:"other_cpus"` // used by other programs, on average
	Steal  float64 `json:"steal_cpus"` // taken by a hypervisor, on average
	Load   float64 `json:"load"`       // of one minute, with the lab
}

// A Fact is one line about the environment of a measurement.
type Fact struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// FactModelled is the key of the fact that rates are a profile's, not measured hardware's.
const FactModelled = "modelled rates between NICs and GPUs"

// A Distribution summarizes the individual latencies of a test over all repeats.
type Distribution struct {
	Test     string        `json:"test"`
	Client   string        `json:"client"`
	Server   string        `json:"server"`
	Bytes    int64         `json:"bytes,omitempty"`
	Emulated bool          `json:"emulated"`
	Count    int64         `json:"count"`  // latencies
	Points   []stats.Point `json:"points"` // rising latencies in us, while one lies beyond
}

// Distributions summarizes the samples that have individual latencies.
func Distributions(samples []bench.Sample) []Distribution {
	type key struct {
		test, client, server string
		bytes                int64
		emulated             bool
	}
	var of group.By[key, []float64]
	for _, s := range samples {
		if s.Error == "" && len(s.Latencies) > 0 {
			of.Add(key{s.Test, s.Client, s.Server, s.Bytes, s.Emulated}, s.Latencies)
		}
	}
	var out []Distribution
	// Tails consist of rare events, and each repeat saw only some.
	for _, k := range of.Keys {
		all := stats.NewHistogram()
		for _, us := range slices.Concat(of.Of(k)...) {
			// Parsers have rejected values above a minute and non-numbers.
			_ = all.Record(us)
		}
		out = append(out, Distribution{Test: k.test, Client: k.client, Server: k.server, Bytes: k.bytes,
			Emulated: k.emulated, Count: all.Count(), Points: all.Distribution()})
	}
	return out
}
