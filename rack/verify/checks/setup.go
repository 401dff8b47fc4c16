package checks

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
)

func steps(ctx context.Context, n lab.Node, r Reader) (out []finding.Finding) {
	for i, s := range n.Setup {
		if s.Check == "" {
			continue
		}
		f := finding.Finding{ID: IDSetup, Subject: n.Name, Title: "setup: " + n.Title(i), Want: "its check succeeds",
			Evidence: "sh -c " + words.Quote(s.Check), Fix: "rackless up with the file of the lab runs it again"}
		res, err := r.Exec(ctx, n.Name, []string{"sh", "-c", s.Check})
		if err != nil {
			out = append(out, unread(IDSetup, n.Name, f.Title, f.Evidence, err.Error(),
				"rackless ls shows whether the node runs"))
			continue
		}
		f.Have = "it succeeds"
		if res.ExitCode != 0 {
			f.Have = fmt.Sprintf("exit status %d%s", res.ExitCode, said(res.Stderr, res.Stdout))
		}
		out = append(out, f.Judged(res.ExitCode == 0))
	}
	return out
}

func said(outputs ...[]byte) string {
	for _, out := range outputs {
		if out = bytes.TrimSpace(out); len(out) > 0 {
			return ": " + string(out[bytes.LastIndexByte(out, '\n')+1:])
		}
	}
	return ""
}

// slurm also requires that a job runs on all nodes, if they are idle.
func slurm(ctx context.Context, l *lab.Lab, r Reader, job bool) []finding.Finding {
	nodes := l.SlurmNodes()
	at := l.Slurm.Controller
	argv := []string{"sinfo", "--noheader", "--Node", "--format=%N %T %E"}
	f := finding.Finding{ID: IDSlurmNodes, Subject: "lab " + l.Name, Want: fmt.Sprintf("%d of %d nodes", len(nodes),
		len(nodes)), Evidence: "in " + at + ": " + strings.Join(argv, " "),
		Fix: "rackless up with the file of the lab starts Slurm again; in the node, see /var/log/slurm"}
	res, err := r.Exec(ctx, at, argv)
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("exit status %d%s", res.ExitCode, said(res.Stderr))
	}
	if err != nil {
		f.Have = err.Error()
		return []finding.Finding{f.Judged(false)}
	}
	states := make(map[string]string) // of nodes, with the reason
	for line := range strings.Lines(string(res.Stdout)) {
		name, state, _ := strings.Cut(strings.TrimSpace(line), " ")
		states[name] = strings.TrimSuffix(state, " none")
	}
	var bad, busy []string
	for _, n := range nodes {
		switch state, reason, _ := strings.Cut(states[n], " "); {
		case state == "idle":
		case slices.Contains([]string{"allocated", "mixed", "completing"}, state):
			busy = append(busy, n)
		case state == "":
			bad = append(bad, n+" is not known")
		default:
			bad = append(bad, strings.TrimSpace(fmt.Sprintf("%s is %s %s", n, state, reason)))
		}
	}
	f.Have = f.Want
	if len(bad) > 0 {
		f.Have = fmt.Sprintf("%d of %d nodes: %s", len(nodes)-len(bad), len(nodes), strings.Join(bad, ", "))
	}
	out := []finding.Finding{f.Judged(len(bad) == 0)}
	if job && len(bad) == 0 {
		out = append(out, slurmJob(ctx, l, r, nodes, busy))
	}
	return out
}

// jobSeconds limits a job: emulated nodes start it within two seconds.
const jobSeconds = "120"

func slurmJob(ctx context.Context, l *lab.Lab, r Reader, nodes, busy []string) finding.Finding {
	argv := []string{"srun", fmt.Sprintf("--nodes=%d", len(nodes)), "--ntasks-per-node=1", "--immediate=60", "hostname"}
	f := finding.Finding{ID: IDSlurmJob, Subject: "lab " + l.Name, Want: strings.Join(nodes, ", "),
		Evidence: "in " + l.Slurm.Controller + ": " + strings.Join(argv, " "),
		Fix:      "see /var/log/slurm of the nodes"}
	if len(busy) > 0 {
		return unread(f.ID, f.Subject, "", f.Evidence, strings.Join(busy, ", ")+" run jobs: not started beside them",
			"rackless verify again when the jobs have ended")
	}
	res, err := r.Exec(ctx, l.Slurm.Controller, append([]string{"timeout", jobSeconds}, argv...))
	if err != nil {
		return unread(f.ID, f.Subject, "", f.Evidence, err.Error(), f.Fix)
	}
	names := strings.Fields(string(res.Stdout))
	slices.Sort(names)
	want := slices.Sorted(slices.Values(nodes))
	f.Have = strings.Join(nodes, ", ")
	if ok := res.ExitCode == 0 && slices.Equal(names, want); !ok {
		f.Have = fmt.Sprintf("%s; exit status %d%s", strings.Join(names, ", "), res.ExitCode, said(res.Stderr))
		return f.Judged(false)
	}
	return f.Judged(true)
}
