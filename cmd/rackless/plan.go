package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/advise"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/plan/rivals"
	"github.com/rackless/rackless/report/planview"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/report/tables"
)

type planOptions struct {
	hostFlag
	form    string
	model   string
	outDir  string
	explain bool
	compare bool
	against string
	studies []string // evidence for --explain; none is all
	db      string   // file of the studies
	fitted  string   // for the model that they give
	limit   time.Duration
	steps   int64 // of the search; 0 selects the default
}

// newPlanCmd never changes the host: it needs no root and can plan for another machine.
func newPlanCmd(a *app) *cobra.Command {
	o := planOptions{form: formTable, limit: planner.DefaultLimit}
	cmd := &cobra.Command{
		Use:               "plan [LAB.yaml]",
		Short:             "Place the nodes of a lab on a host at the lowest score, say what is proved, write files",
		Args:              cli.MaxArgs(1, "one LAB.yaml"),
		ValidArgsFunction: completeLabFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			file, err := labFile(cmd, args)
			if err != nil {
				return err
			}
			return a.plan(cmd.Context(), o, file)
		},
	}
	cli.EnumFlag(cmd, &o.form, "output", "o", "how to print the plan", formTable, formatJSON,
		formatYAML, formSVG, formHTML)
	f := cmd.Flags()
	o.add(cmd, "plan for")
	f.StringVar(&o.model, "model", "", "take weights and measured GPU-NIC bandwidths from `FILE`")
	f.BoolVar(&o.explain, "explain", false, "give the reason for each choice, and the score of the next best")
	f.BoolVar(&o.compare, "compare", false, "place the same lab as libvirt does by default and by hand, and compare")
	f.StringArrayVar(&o.studies, "study", nil, "with --explain: use only the study `NAME`; can be given several times")
	dbFlag(cmd, &o.db)
	f.StringVar(&o.fitted, "model-out", "", "with --explain: write the model that the studies give to `FILE`, "+
		"for --model")
	f.StringVar(&o.against, "against", "", "show what is different from the plan in `FILE`, as -o json printed it")
	f.StringVar(&o.outDir, "out", "", "write the artefacts of the plan to `DIR`")
	f.DurationVar(&o.limit, "time-limit", o.limit, "stop after this `TIME`, with the best plan so far; the usual "+
		"limit of steps does not count then")
	cli.OfferWords(cmd, "time-limit")
	cli.Offer(cmd, "out", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	})
	return cmd
}

// check refuses flags that contradict each other, have no effect, or are empty, such as an unset variable.
func (o *planOptions) check(cmd *cobra.Command) error {
	f := cmd.Flags()
	if err := o.hostFlag.check(cmd, "a file or directory", "model", "out", "against", "db", "model-out"); err != nil {
		return err
	}
	if o.limit <= 0 {
		return cli.Usagef(cmd, "--time-limit %v: want more than 0", o.limit)
	}
	if f.Changed("time-limit") {
		o.steps = math.MaxInt64
	}
	for _, name := range []string{"study", "db", "model-out"} {
		if f.Changed(name) && !o.explain {
			return cli.Usagef(cmd, "--%s is for --explain, whose evidence studies are", name)
		}
	}
	if (o.form == formSVG || o.form == formHTML) && (o.compare || o.against != "" || o.explain && o.form == formSVG) {
		return cli.Usagef(cmd, "-o %s draws one plan: it cannot be combined with --compare or --against, and "+
			"--explain is for -o html", o.form)
	}
	return nil
}

func (a *app) plan(ctx context.Context, o planOptions, labFile string) error {
	l, err := loadLab(labFile)
	if err != nil {
		return err
	}
	h, name, err := a.hosts().Read(ctx, planner.HostOf(l, o.host))
	if err != nil {
		return err
	}
	q, err := planner.New(name, labFile, l, o.model)
	if err != nil {
		return cli.Usage(err)
	}
	q.Limit, q.Steps, q.Explain, q.Compare = o.limit, o.steps, o.explain, o.compare
	var before *plan.Plan
	if o.against != "" {
		if before, err = planner.ReadPlan(o.against); err != nil {
			return err
		}
	}
	r, err := q.Solve(ctx, h, l)
	if err != nil {
		return a.refused(o.form, &q, err)
	}
	var evidence *tables.Recommendation
	if o.explain {
		out, err := a.recommendation(ctx, h, name, l, labFile, o.db, o.studies)
		if err != nil {
			return err
		}
		evidence = &out
	}
	if err := a.finishPlan(&o, &q, r, before, evidence); err != nil || o.fitted == "" {
		return err
	}
	return a.writeModel(o.fitted, evidence.Model)
}

// refused prints why there is no plan, and returns other errors unchanged.
func (a *app) refused(form string, q *planner.Query, err error) error {
	// A lab that does not fit is an answer, not a failure.
	fits := !errors.As(err, new(*plan.Infeasible))
	if reason := planner.Reason(err); reason != nil && show.ForPrograms(form) {
		if failed := show.Encode(a.out, form, reason); failed != nil {
			return failed
		}
		if !fits {
			return cli.Exit(exitFaults)
		}
	}
	if !fits {
		return faultf("%s cannot be placed on %s: %w", q.File, q.HostName, err)
	}
	return err
}

// finishPlan prints a plan, and its differences from before if set, and writes its files.
func (a *app) finishPlan(o *planOptions, q *planner.Query, r *planner.Planned, before *plan.Plan,
	evidence *tables.Recommendation) error {
	// An error about the directory does not follow the printed plan.
	if o.outDir != "" {
		in := inputOf(r, q.File)
		files, err := planArtifacts(in)
		if err != nil {
			return err
		}
		said, err := writeFiles(o.outDir, files, in.Made)
		if err != nil {
			return err
		}
		defer fmt.Fprint(a.err, said) // printed after the plan
	}
	document := planDocument{Plan: r.Plan, Compare: r.Others, Recommendation: evidence}
	if before != nil {
		document.Against = &planAgainst{Before: before.Cost, After: r.Plan.Cost, Differences: []string{}}
		document.Against.Differences = append(document.Against.Differences, advise.Differences(before, r.Plan)...)
	}
	if show.ForPrograms(o.form) {
		return show.Encode(a.out, o.form, document)
	}
	// A closed pipe gets no partial table.
	var b bytes.Buffer
	if draw := map[string]func(io.Writer, *plan.Plan, *topology.Host) error{formSVG: planview.SVG,
		formHTML: planview.HTML}[o.form]; draw != nil {
		if err := draw(&b, r.Plan, r.Host); err != nil {
			return err
		}
		_, err := a.out.Write(b.Bytes())
		return err
	}
	options := planview.Options{Width: a.width(), Reboot: rebootText(r), Explained: o.explain}
	options.Apply = applyText(r, q.File, o.host, options.Reboot)
	if before != nil {
		planview.Against(&b, before, r.Plan, document.Against.Differences, options)
	}
	planview.Table(&b, r.Plan, options)
	if o.explain {
		planview.Explain(&b, r.Plan, options)
		b.WriteString("\n" + show.Fold(evidence.Text(), options.Width))
	}
	if o.compare {
		planview.Compare(&b, r.Plan, r.Others, options)
	}
	_, err := a.out.Write(b.Bytes())
	return err
}

// rebootText is "" for a plan that is not made by preparing a host.
func rebootText(r *planner.Planned) string {
	need := r.Plan.KernelArgs
	if r.Lab.RunBy() != lab.DriverLibvirt {
		return ""
	}
	if cmdline := r.Host.Kernel.Cmdline; cmdline != nil {
		have := strings.Fields(*cmdline)
		need = slices.DeleteFunc(slices.Clone(need), func(arg string) bool { return slices.Contains(have, arg) })
	}
	switch {
	case len(need) == 0:
		return "not needed"
	case r.Host.Kernel.Cmdline == nil:
		return fmt.Sprintf("needed, unless the host runs with the plan's %s already", words.Count(len(need),
			"kernel argument"))
	}
	return fmt.Sprintf("needed, for %s", words.Count(len(need), "kernel argument"))
}

func applyText(r *planner.Planned, file, host, reboot string) string {
	file = words.CommandLine([]string{file})
	on := ""
	if host != planner.Local {
		on = "on that host: "
	}
	switch r.Lab.RunBy() {
	case lab.DriverVSphere:
		return "rackless up " + file
	case lab.DriverLibvirt:
		boot := ""
		if strings.HasPrefix(reboot, "needed") {
			boot = " reboot,"
		}
		return fmt.Sprintf("%srackless prepare %s (--dry-run shows each step),%s rackless up %[2]s", on, file, boot)
	}
	return fmt.Sprintf("the file has to say driver: libvirt; without it rackless up %s makes emulated nodes", file)
}

// planDocument has the plan's keys at the top level, so that readers of a plan, such as verify --plan, accept it. See
// docs/json.md.
type planDocument struct {
	*plan.Plan
	Compare []rivals.Outcome `json:"compare,omitempty"`
	Against *planAgainst     `json:"against,omitempty"`
	// Recommendation is from --explain.
	Recommendation *tables.Recommendation `json:"recommendation,omitempty"`
}

type planAgainst struct {
	Before      int64    `json:"score_before"`
	After       int64    `json:"score_after"`
	Differences []string `json:"differences"`
}

func (a *app) planOn(ctx context.Context, h *topology.Host, name string, l *lab.Lab,
	file, model string) (*planner.Planned, error) {
	q, err := planner.New(name, file, l, model)
	if err != nil {
		return nil, cli.Usage(err)
	}
	r, err := q.Solve(ctx, h, l)
	if err != nil {
		return nil, a.refused(formTable, &q, err)
	}
	return r, nil
}

func (a *app) planAt(ctx context.Context, host string, l *lab.Lab, file, model string) (*planner.Planned, error) {
	h, name, err := a.hosts().Read(ctx, host)
	if err != nil {
		return nil, err
	}
	return a.planOn(ctx, h, name, l, file, model)
}
