package build

import (
	"fmt"

	"github.com/rackless/rackless/internal/strictyaml"
)

// A Model is what was measured on a host, in place of the published figures. Its file is JSON or YAML (plan --model).
type Model struct {
	// Weights replaces single weights by their JSON names: {"gpu_nic_path": 700}.
	Weights map[string]int64 `json:"weights,omitempty" yaml:"weights"`
	// Pairs are measured bandwidths between GPUs and NICs.
	Pairs []MeasuredPair `json:"pairs,omitempty" yaml:"pairs"`
	// Source says where the figures are from; it is repeated as evidence.
	Source string `json:"source,omitempty" yaml:"source"`
}

// A MeasuredPair is the bandwidth between a GPU and a NIC.
type MeasuredPair struct {
	GPU  string  `json:"gpu" yaml:"gpu"`   // address or name
	NIC  string  `json:"nic" yaml:"nic"`   // likewise
	Gbps float64 `json:"gbps" yaml:"gbps"` // more than 0; the best pair of the file has no loss
}

// MaxModelSize bounds the file of a model, in bytes. A thousand pairs take 100 KiB.
const MaxModelSize = 1 << 20

// ParseModel reads a Model from YAML, of which JSON is a part. The name is only used in messages.
// Keys that a Model does not have are refused, and so are anchors, tags and several documents: a
// file of figures needs none, and they can make a small file large. Whether weights and devices are
// called so, and whether the figures can be right, [Problem] says. The error is a [strictyaml.Errors].
func ParseModel(name string, data []byte) (*Model, error) {
	const want = "weights, pairs or both"
	r := strictyaml.New(&strictyaml.Format{
		// A thousand pairs are 15,000 tokens, and three levels deep.
		Name: "model", File: "model", MaxSize: MaxModelSize, MaxTokens: 60_000, MaxDepth: 8, EmptyWant: want,
	}, name)
	m := &Model{}
	r.Parse(data, m)
	for i := range m.Pairs {
		for _, key := range []string{"gpu", "nic", "gbps"} {
			path := fmt.Sprintf("pairs[%d].%s", i, key)
			if len(r.Errs) == 0 && r.Values[path] == (strictyaml.Place{}) {
				r.Fail(r.Place(path), strictyaml.Error{Key: path, What: "missing key",
					Fix: "a pair has gpu, nic and gbps, as in {gpu: GPU0, nic: NIC0, gbps: 392}"})
			}
		}
	}
	if len(r.Errs) == 0 && len(m.Weights) == 0 && len(m.Pairs) == 0 {
		r.Fail(r.Place(""), strictyaml.Error{What: "neither weights nor pairs", Want: want})
	}
	if len(r.Errs) > 0 {
		return nil, r.Errs
	}
	return m, nil
}
