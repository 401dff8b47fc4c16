// Package record holds what is kept of a measurement of a lab: figures, nodes, surroundings and findings. Package
// study/results stores it, and package report shows it.
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

// Record is everything that a report shows. Every field may be empty: what is missing is said or left
// out, never invented.
type Record struct {
	Lab       string            `json:"lab"`
	Title     string            `json:"title,omitempty"` // default: "Lab " and the lab's name
	Generated time.Time         `json:"generated"`       // printed in UTC
	Rackless  string            `json:"rackless"`        // version of rackless
	Nodes     []Node            `json:"nodes"`           // in the order of rows, columns and pairs
	Findings  []finding.Finding `json:"findings,omitempty"`
	Samples   []bench.Sample    `json:"samples,omitempty"`
	// Judgements compare bandwidths with the limits of their path, and Beside compares latencies with published ones.
	// Results of earlier releases have neither.
	Judgements []expect.Judgement           `json:"expectations,omitempty"`
	Beside     []expect.PublishedComparison `json:"published,omitempty"`
	// Distributions summarize the individual latencies.
	Distributions []Distribution `json:"latency_distributions,omitempty"`
	Environment   []Fact         `json:"environment,omitempty"` // printed in this order
	GPUPaths      []GPUPath      `json:"gpu_paths,omitempty"`   // of the GPUs and NICs of tests that name a NIC
	// Disturbed is a sentence that begins with "disturbed" if other programs kept the machine busy before or after the
	// measurement. The noise floors are nil if they were not measured.
	Disturbed   string      `json:"disturbed,omitempty"`
	NoiseBefore *NoiseFloor `json:"noise_before,omitempty"`
	NoiseAfter  *NoiseFloor `json:"noise_after,omitempty"`
	// HostPicture is an SVG document of the machine that the lab ran on, as written by "rackless inspect -o svg". It
	// is not shown if empty.
	HostPicture string `json:"host_picture,omitempty"`
	Emulated    bool   `json:"emulated"` // the whole lab was emulated; a Sample may be marked too
	// EmulatedHost is set if the lab ran on an emulated host, so that KVM was emulated too.
	EmulatedHost bool `json:"emulated_host,omitempty"`
	// NoSwitch is set for nodes on the host's own NICs, which are not connected by a rackless switch.
	NoSwitch bool `json:"-"`
}

// A GPUPath is the PCIe path between a GPU and a NIC of a node.
type GPUPath struct {
	Node string `json:"node"`
	GPU  int    `json:"gpu"`  // as CUDA and nvidia-smi count, from 0
	NIC  int    `json:"nic"`  // number of the node's NIC, from 0
	Name string `json:"name"` // network device and RDMA device of the NIC, as in "eth0, mlx5_0"
	// class of nvidia-smi topo: "PIX"; "" if unknown
	Path string `json:"path,omitempty"`
	// ModelledBits is the rate that the node's profile sets for the path, in bits per second; 0 if it sets none.
	ModelledBits int64 `json:"modelled_bits,omitempty"`
}

// A Node is one machine of the lab.
type Node struct {
	Name        string `json:"name"`
	Address     string `json:"address,omitempty"` // with prefix length: "10.77.0.10/24"
	MAC         string `json:"mac,omitempty"`
	RDMADevice  string `json:"rdma_device,omitempty"` // "rxe0"; empty if the node has none
	GIDIndex    int    `json:"gid_index"`             // of the RoCE v2 address; unused without RDMADevice
	MTU         int    `json:"mtu,omitempty"`         // of the network device, in bytes
	IBMTU       int    `json:"ib_mtu,omitempty"`      // active MTU of the RDMA port, in bytes
	CPUs        int    `json:"cpus,omitempty"`
	Memory      int64  `json:"memory,omitempty"`      // bytes
	Accelerator string `json:"accelerator,omitempty"` // "kvm" or "tcg"
	Driver      string `json:"driver,omitempty"`      // source of the node, such as "qemu"
	// The following fields are known only for a running node and only appear in pictures.
	State string `json:"-"` // shown instead of the MAC
	Off   bool   `json:"-"` // it is not running as it should
	Wires []Wire `json:"-"` // nil means one wire without details
}

// A Wire is a link from a NIC of a running node to the switch.
type Wire struct {
	Text           string
	Down, Impaired bool
	Note           string // a fault of the link, written into the node's box
}

// A NoiseFloor is the use of a machine by other programs than the lab, while the lab was idle.
type NoiseFloor struct {
	CPUs   int     `json:"cpus"`       // of the machine
	Others float64 `json:"other_cpus"` // CPUs that other programs used, on average
	Steal  float64 `json:"steal_cpus"` // CPUs that a hypervisor took, on average
	Load   float64 `json:"load"`       // average of one minute, with the lab
}

// A Fact is one line about the environment of a measurement, such as the host's CPU model or a tool's version.
type Fact struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// FactModelled is the key of the fact that rates between NICs and GPUs are modelled, and not those of the hardware that
// a profile stands for.
const FactModelled = "modelled rates between NICs and GPUs"

// A Distribution summarizes the individual latencies of a test over all repeats.
type Distribution struct {
	Test     string        `json:"test"`
	Client   string        `json:"client"`
	Server   string        `json:"server"`
	Bytes    int64         `json:"bytes,omitempty"`
	Emulated bool          `json:"emulated"`
	Count    int64         `json:"count"`  // latencies
	Points   []stats.Point `json:"points"` // rising latencies in us by quantile, while one lies beyond
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
	// Repeats are merged: tails consist of rare events, and each repeat saw only some of them.
	for _, k := range of.Keys {
		all := stats.NewHistogram()
		for _, us := range slices.Concat(of.Of(k)...) {
			// The histogram rejects values above a minute and non-numbers. Parsers reject them too, so the error can
			// be ignored.
			_ = all.Record(us)
		}
		out = append(out, Distribution{Test: k.test, Client: k.client, Server: k.server, Bytes: k.bytes,
			Emulated: k.emulated, Count: all.Count(), Points: all.Distribution()})
	}
	return out
}
