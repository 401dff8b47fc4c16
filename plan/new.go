package plan

import (
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/topology"
)

// Options are what New needs beside host and lab.
type Options struct {
	HostName string            // for messages: a file, or "this machine"
	Tenants  []topology.Tenant // in place of the host's, where lab.Tenants names a file
	Model    *Model            // measurements that override the published weights; nil for none
}

// A Model is what was measured on a host, in place of the published figures. Its file is JSON or YAML (plan --model).
type Model struct {
	// Weights replaces single weights by their JSON names: {"gpu_nic_path": 700}.
	Weights map[string]int64 `json:"weights,omitempty"`
	// Pairs are measured bandwidths between GPUs and NICs.
	Pairs []MeasuredPair `json:"pairs,omitempty"`
	// Source says where the figures are from; it is repeated as evidence.
	Source string `json:"source,omitempty"`
}

// A MeasuredPair is the bandwidth between a GPU and a NIC.
type MeasuredPair struct {
	GPU  string  `json:"gpu"`  // address or name
	NIC  string  `json:"nic"`  // likewise
	Gbps float64 `json:"gbps"` // more than 0; the best pair of the file has no loss
}

// New makes a Problem of a host and a lab. Errors are about what the lab asks for and the host has not; they name the lab node, the key, what is there and
// what to do.
func New(h *topology.Host, l *lab.Lab, o Options) (*Problem, error) {
	panic("being built")
}
