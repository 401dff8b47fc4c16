package verify

import (
	"context"
	"fmt"

	"github.com/rackless/rackless/rack"
)

// OfLab is a running lab. Of one that is placed on this host, the host and its virtual machines are
// checked against the plan too. r must stay open while the target is used.
func OfLab(ctx context.Context, r *rack.Rack) (*Target, error) {
	hosted, ok := r.Hosted()
	if !ok {
		return &Target{Lab: r.Lab, Nodes: r, LinksSet: r.LinksSet()}, nil
	}
	p, err := hosted.Placement()
	if err != nil {
		return nil, err
	}
	local, err := hosted.Local(ctx)
	if err != nil {
		return nil, err
	}
	if !local {
		return &Target{Plan: p.Plan, Lab: r.Lab, Nodes: r, Unseen: fmt.Sprintf("the host, and where its kernel "+
			"has the threads and memory of the virtual machines: it is another machine (%s), of which only the "+
			"nodes can be seen from here; on it, rackless verify --plan says more", p.URI)}, nil
	}
	t := OfHost(p.Plan)
	t.Lab, t.Nodes, t.Domains = r.Lab, r, hosted.Domains
	return t, nil
}
