package rack

import (
	"context"

	"github.com/rackless/rackless/check"
	"github.com/rackless/rackless/guest"
)

// Facts and Exec make a Rack a check.Reader.
var _ check.Reader = (*Rack)(nil)

// Facts returns what the kernel of a node says of it now.
func (r *Rack) Facts(ctx context.Context, node string) (*guest.Facts, error) {
	a, err := r.agent(ctx, node)
	if err != nil {
		return nil, err
	}
	return a.ReadFacts(ctx)
}

// Exec runs a command on a node.
func (r *Rack) Exec(ctx context.Context, node string, argv ...string) (guest.Result, error) {
	return r.Run(ctx, node, guest.Command{Argv: argv})
}
