package mpi

import (
	"context"
	"runtime"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/image"
	"github.com/rackless/rackless/rack"
)

// ForLab returns the launcher of a running lab. Outside of nodes it runs the packages of the first node's image, which
// it unpacks where images says when they are first needed.
func ForLab(r *rack.Rack, images image.Options) *Launcher {
	var unpacked *image.Image
	return &Launcher{Runner: r, Lab: r.Lab, Endpoint: r.Endpoint, BareCPUs: runtime.NumCPU(),
		Bare: func(ctx context.Context, argv []string, stdin []byte) (bench.Output, error) {
			if unpacked == nil {
				kind, err := image.Bare(r.Lab.Nodes[0].Image)
				if err != nil {
					return bench.Output{}, err
				}
				if unpacked, err = kind.Ensure(ctx, images); err != nil {
					return bench.Output{}, err
				}
			}
			ran, err := unpacked.RunBare(ctx, argv, stdin)
			return bench.Output{Stdout: ran.Stdout, Stderr: ran.Stderr, ExitCode: ran.ExitCode, CPU: ran.CPU}, err
		}}
}
