package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/docs"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm"
)

// newLabCmd holds the commands that work on lab files.
func newLabCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Check a lab file, print it with its defaults, or compare it with the running lab",
		Long: `Works on lab files without starting anything. examples/full.yaml describes the lab file, and so does
its JSON schema, for editors and other tools.`,
		Example: `  rackless lab check lab.yaml
  rackless lab schema > lab.schema.json`,
	}
	cmd.AddCommand(newLabCheckCmd(a), newLabDefaultsCmd(a), newLabDiffCmd(a), newLabSchemaCmd(a))
	return cmd
}

// newLabCheckCmd makes rackless lab check. All faults are listed at once, with status 2, as up would end.
func newLabCheckCmd(a *app) *cobra.Command {
	return ofLabFile(&cobra.Command{
		Use:   "check [LAB.yaml]",
		Short: "Check a lab file: list every fault with its line, exit with status 2 if there is one",
		Long: `Reads the file as up does, and prints a summary of the lab. A correct file does not mean that this
machine has room for the lab: rackless doctor says how many nodes fit.`,
		Example: "  rackless lab check examples/pair.yaml",
	}, func(_ context.Context, l *lab.Lab, file string) error {
		cpus, memory := totals(l)
		fmt.Fprintf(a.out, "%s: lab %s: %s, %s, %s, %v, MTU %d (RDMA payload %d)\n", file, l.Name,
			words.Count(len(l.Nodes), "node"), cpus, memory, l.Fabric.Subnet, l.Fabric.MTU, l.Fabric.RDMAPayload())
		// The file is right all the same: it may be meant for another machine, or for a plan.
		if err := rack.Check(l); err != nil {
			fmt.Fprintf(a.err, "the file is right, but up will refuse it: %v\n", err)
		}
		return nil
	})
}

// totals says how many CPUs and how much memory a lab has, as far as the file says it.
func totals(l *lab.Lab) (cpus, memory string) {
	// Nodes that leave their size to the planner are not counted: what it chooses follows from the host.
	const auto = " and what plan chooses"
	var n int
	var b lab.Bytes
	moreCPUs, moreMemory := "", ""
	for _, node := range l.Nodes {
		if node.AutoCPUs {
			moreCPUs = auto
		} else {
			n += node.CPUs
		}
		if node.AutoMemory {
			moreMemory = auto
		} else {
			b += node.Memory
		}
	}
	return words.Count(n, "CPU") + moreCPUs, fmt.Sprintf("%v memory%s", b, moreMemory)
}

// newLabDefaultsCmd makes rackless lab defaults. Its output is a lab file with the same meaning.
func newLabDefaultsCmd(a *app) *cobra.Command {
	return ofLabFile(&cobra.Command{
		Use:   "defaults [LAB.yaml]",
		Short: "Print a lab file with every default written out, and the addresses that follow",
		Long: `Prints the lab as a lab file with every value written out: what up will make, with every name, MAC
and IP address. The output is a lab file with the same meaning.`,
		Example: "  rackless lab defaults examples/sixteen.yaml",
	}, func(_ context.Context, l *lab.Lab, _ string) error {
		_, err := a.out.Write(l.YAML())
		return err
	})
}

// newLabSchemaCmd makes rackless lab schema.
func newLabSchemaCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of the lab file",
		Long: `Prints the JSON schema (draft 2020-12) of the lab file. Editors with a YAML language server complete
and check lab files by it when the file begins with a line such as "# yaml-language-server:
$schema=lab.schema.json".`,
		Example: "  rackless lab schema > lab.schema.json",
		Args:    exactArgs(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(docs.LabSchema)
			return err
		},
	}
}

// diffOutput is what lab diff prints as JSON, see docs/json.md.
type diffOutput struct {
	Lab     string       `json:"lab"`
	Running bool         `json:"running"`
	Changes []lab.Change `json:"changes"`          // between the running lab and the file
	Repairs []string     `json:"repairs"`          // what up would start again, although the file has not changed there
	Effect  lab.Effect   `json:"effect,omitempty"` // the dearest of the changes: "live", "recreate" or "rebuild"
}

// newLabDiffCmd makes rackless lab diff. It shows before up what up would interrupt.
func newLabDiffCmd(a *app) *cobra.Command {
	var format string
	cmd := ofLabFile(&cobra.Command{
		Use:   "diff [LAB.yaml]",
		Short: "Show what up would change in the running lab, and what that interrupts",
		Long: `Compares the file with the running lab of the same name. Each change has an effect:

  live      applied while the nodes run
  recreate  the node is made again; the others continue
  rebuild   the whole lab is made again`,
		Example: "  rackless lab diff pair.yaml",
	}, func(ctx context.Context, l *lab.Lab, _ string) error {
		out, err := a.diff(ctx, l)
		if err != nil {
			return err
		}
		return a.print(format, out, diffText(out, len(l.Nodes)))
	})
	outputFlag(cmd, &format)
	return cmd
}

// diff compares a lab file with the running lab of its name. If that lab is not running there are no changes:
// up would make all of it.
func (a *app) diff(ctx context.Context, l *lab.Lab) (diffOutput, error) {
	out := diffOutput{Lab: l.Name, Changes: []lab.Change{}, Repairs: []string{}}
	d, err := a.dirs()
	if err != nil {
		return out, err
	}
	r, err := rack.Open(d, l.Name)
	if errors.Is(err, rack.ErrNotRunning) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.Running = true
	out.Changes = append(out.Changes, lab.Diff(r.State.Lab, l)...)
	out.Effect = lab.Dearest(out.Changes)
	// A dead switch or node is no difference to the file, but up would start it again, and who asks what
	// up does wants to know.
	if r.SwitchState() == rack.SwitchDead {
		out.Repairs = append(out.Repairs, "switch: not running")
	}
	for _, st := range r.Status(ctx) {
		switch {
		case st.Err != nil:
			return out, fmt.Errorf("node %s: %w", st.Lab.Name, st.Err)
		case st.State == vm.Dead || st.State == rack.Starting:
			out.Repairs = append(out.Repairs, fmt.Sprintf("%s: %s", st.Lab.Name, st.State))
		}
	}
	return out, nil
}

// diffText prints one line a change.
func diffText(out diffOutput, nodes int) string {
	if !out.Running {
		return fmt.Sprintf("lab %s is not running: up would start %s\n", out.Lab, words.Count(nodes, "node"))
	}
	var b strings.Builder
	for _, c := range out.Changes {
		fmt.Fprintln(&b, c)
	}
	for _, r := range out.Repairs {
		fmt.Fprintf(&b, "%s (up starts it again)\n", r)
	}
	if b.Len() == 0 {
		return fmt.Sprintf("lab %s is as the file says: up would change nothing\n", out.Lab)
	}
	return b.String()
}
