package export

import (
	"fmt"

	"github.com/rackless/rackless/plan/render"
	"github.com/rackless/rackless/plan/render/openmpi"
)

// OpenMPI returns a hostfile with a rank for each core, and the rank file that binds them:
//
//	mpirun --hostfile hostfile --rankfile rankfile -np RANKS PROGRAM
func OpenMPI(in render.Input) ([]render.Artifact, error) {
	if err := check(&in); err != nil {
		return nil, fmt.Errorf("export openmpi: %w", err)
	}
	nodes := openmpi.NodesOf(in.Plan)
	return []render.Artifact{
		{Path: "hostfile", Mode: 0o644, Data: []byte(openmpi.Hostfile(nodes))},
		{Path: "rankfile", Mode: 0o644, Data: []byte(openmpi.Rankfile(in.Lab.Name, in.Plan, nodes))},
	}, nil
}
