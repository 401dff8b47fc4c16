package rack

import (
	"context"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/check"
	"github.com/rackless/rackless/facts"
	"github.com/rackless/rackless/guest"
)

// Facts and Exec make a Rack a check.Reader.
var _ check.Reader = (*Rack)(nil)

// Facts returns what the kernel of a node says of it now.
func (r *Rack) Facts(ctx context.Context, node string) (*facts.Node, error) {
	a, err := r.agent(ctx, node)
	if err != nil {
		return nil, err
	}
	return a.ReadFacts(ctx)
}

// execPoll bounds the pause between two looks at a command that Exec runs. It is long since measurements are run by it, and each look
// takes CPU time from the node that is measured.
const execPoll = 250 * time.Millisecond

// Exec runs a command on a node.
func (r *Rack) Exec(ctx context.Context, node string, argv []string) (bench.Output, error) {
	res, err := r.Run(ctx, node, guest.Command{Argv: argv, MaxPoll: execPoll})
	return bench.Output{Stdout: res.Stdout, Stderr: res.Stderr, ExitCode: res.ExitCode}, err
}
