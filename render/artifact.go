package render

import (
	"io/fs"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/topology"
)

// An Artifact is a file to write: nothing here writes it.
type Artifact struct {
	Path string // below the directory of the plan, with forward slashes: "domains/vm00.xml"
	Mode fs.FileMode
	Data []byte
}

// Input is what artefacts are made of.
type Input struct {
	Plan *plan.Plan
	Lab  *lab.Lab
	Host *topology.Host
	// Made says what made the files and from what: "rackless v1 plan of lab epyc-pair (examples/epyc-pair.yaml) for epyc-7551p.ttar".
	Made string
}
