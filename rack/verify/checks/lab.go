package checks

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
)

// A Reader reads the live lab.
type Reader interface {
	// Facts are current, from a node's kernel.
	Facts(ctx context.Context, node string) (*facts.Node, error)
	bench.Executor
}

// atOnce is low: under emulation more nodes only wait for each other.
const atOnce = 4

// Lab returns findings in the order of the nodes. only selects checks; nil means all. An error means that checking was
// interrupted; a node that does not answer is a finding.
func Lab(ctx context.Context, l *lab.Lab, r Reader, only []string, progress func(what string)) ([]finding.Finding,
	error) {
	wanted := func(ids ...string) bool {
		return len(only) == 0 || slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(only, id) })
	}
	nodes := make([]*facts.Node, len(l.Nodes))
	// First: other reads of a node would wait for an adapter that does not answer.
	ids := lists.Map(adapterChecks, func(c adapterCheck) string { return c.id })
	out := adapters(ctx, l, r, wanted(ids...))
	known, lost := slices.Clone(out), lostAdapters(out)
	if wanted(IDLink, IDMTU, IDAddress, IDPort, IDIBMTU, IDGID, IDIdentity, IDTraffic) {
		perNode := make([][]finding.Finding, len(l.Nodes))
		progress("read the nodes")
		// The active IB MTU costs a process on the node.
		withIBMTU := wanted(IDIBMTU, IDTraffic)
		parallel(len(l.Nodes), func(i int) {
			if f, is := lost[l.Nodes[i].Name]; is {
				perNode[i] = []finding.Finding{notRead(l.Nodes[i].Name, f)}
				return
			}
			nodes[i], perNode[i] = nodeFindings(ctx, l, l.Nodes[i], r, withIBMTU)
			explained(perNode[i], known)
		})
		out = append(append(out, slices.Concat(perNode...)...), identity(l, nodes, claims(ctx, r)))
	}
	if wanted(IDSwitchLinks) && ctx.Err() == nil {
		out = append(out, switchLinks(ctx, r)...)
	}
	if wanted(IDReach) && ctx.Err() == nil {
		progress("reach every peer at full MTU")
		out = append(out, Reach(ctx, l, r)...)
	}
	// Earlier findings show which messages cannot get through.
	if wanted(IDTraffic) && ctx.Err() == nil {
		progress("send RDMA messages around the ring")
		out = append(out, traffic(ctx, l, nodes, out, r)...)
	}
	if members := fileSenders(l); wanted(IDAdapterFiles) && len(members) > 1 && ctx.Err() == nil {
		progress("send files around the ring")
		out = append(out, files(ctx, members, out, r)...)
	}
	if wanted(IDGPU, IDGPUBus, IDGPUDriver, IDGPUMemory, IDGPUPath, IDGPUNIC, IDGPUBytes) && l.HasGPUs() &&
		ctx.Err() == nil {
		progress("write to the memory of GPUs")
		out = append(out, gpus(ctx, l, r, out, wanted(IDGPUBytes))...)
	}
	if wanted(IDSetup, IDMPI) && ctx.Err() == nil {
		perNode := make([][]finding.Finding, len(l.Nodes))
		parallel(len(l.Nodes), func(i int) {
			if _, is := lost[l.Nodes[i].Name]; !is {
				perNode[i] = append(steps(ctx, l.Nodes[i], r), mpiTransport(ctx, l.Nodes[i], r)...)
			}
		})
		out = append(out, slices.Concat(perNode...)...)
	}
	if wanted(IDSlurmNodes, IDSlurmJob) && l.Slurm != nil && ctx.Err() == nil {
		progress("run a job on all nodes of Slurm")
		out = append(out, slurm(ctx, l, r, wanted(IDSlurmJob))...)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	// A silent node has one finding, of IDLink, for all.
	return coded(slices.DeleteFunc(out, func(f finding.Finding) bool { return !wanted(f.ID) && !f.Silent })), nil
}

func addrsOf(n lab.Node) []netip.Addr {
	return lists.Map(n.NICs, func(nic lab.NIC) netip.Addr { return nic.Addr.Addr() })
}

func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	tokens := make(chan struct{}, atOnce)
	for i := range n {
		tokens <- struct{}{}
		wg.Go(func() {
			defer func() { <-tokens }()
			f(i)
		})
	}
	wg.Wait()
}

func judge(id, subject, title, have, want, evidence, fix string) finding.Finding {
	f := finding.Finding{ID: id, Subject: subject, Title: title, Have: have, Want: want, Evidence: evidence, Fix: fix}
	return f.Judged(have == want)
}

func unread(id, subject, title, evidence, why, fix string) finding.Finding {
	return finding.Finding{ID: id, Subject: subject, Title: title, Status: finding.Unknown, Have: why,
		Evidence: evidence, Fix: fix}
}

func silent(id, node, why, fix string) finding.Finding {
	f := unread(id, node, "node answers", "guest agent", why, fix)
	f.Silent = true
	return f
}

func notRead(node string, why finding.Finding) finding.Finding {
	f := silent(IDLink, node, "not read, as the node's kernel would wait for its NIC: "+why.Have, why.Fix)
	f.Evidence = why.ID
	return f
}

// adapters reads the nodes' kernels too if read is set.
func adapters(ctx context.Context, l *lab.Lab, r Reader, read bool) []finding.Finding {
	var all []Adapter
	if from, ok := r.(AdapterReader); ok {
		var err error
		if all, err = from.Adapters(ctx); err != nil && ctx.Err() == nil {
			return []finding.Finding{{ID: IDAdapter, Subject: "lab " + l.Name, Status: finding.Failed,
				Want: "connected",
				Have: err.Error(), Evidence: "rackless nic ls", Consequence: adapterChecks[0].consequence,
				Fix: "rackless up with the lab's file starts the daemon and the nodes again"}}
		}
	}
	known := states(all)
	if read {
		known = seenAdapters(ctx, l, r, all)
	}
	if len(known) == 0 {
		return nil
	}
	return adapterFindings(l, known)
}
