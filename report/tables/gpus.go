//go:build linux

package tables

import (
	"fmt"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/report/show"
)

// GPUs is the JSON output of rackless gpu ls. See docs/json.md.
type GPUs struct {
	GPUs []LabGPU `json:"gpus"` // by lab, in node order
}

// A LabGPU is an emulated GPU of a lab.
type LabGPU struct {
	Lab string `json:"lab"`
	checks.GPU
}

// GPUGrid returns a table with one row for each GPU.
func GPUGrid(out GPUs) *show.Grid {
	g := show.NewGrid("lab", "node", "gpu>", "model", "memory>", "allocated>", "path", "machine", "driver", "fault")
	for _, x := range out.GPUs {
		machine, driver := "lost", "none"
		if x.Connected {
			machine = "connected"
		}
		switch {
		case x.Broken:
			driver = "stopped"
		case x.Driver:
			driver = "ready"
		}
		g.Add(x.Lab, x.Node, fmt.Sprint(x.Number), x.Model, words.Bytes(x.Memory), words.Bytes(x.Allocated),
			fmt.Sprintf("%s to %s", x.Path, x.Beside), machine, driver, string(x.Fault))
	}
	return g
}
