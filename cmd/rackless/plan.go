package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/rackless/rackless/host"
	"github.com/rackless/rackless/inspect"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/advise"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/conflict"
	"github.com/rackless/rackless/plan/rivals"
	"github.com/rackless/rackless/plan/search"
	"github.com/rackless/rackless/plan/verify"
	"github.com/rackless/rackless/render"
	"github.com/rackless/rackless/report/planview"
	"github.com/rackless/rackless/topology"
)

// hostLocal is the value of --host for the machine that runs rackless.
const hostLocal = "local"

// defaultPlanTime is how long a plan may take. Usual ones take milliseconds; it ends those that nobody would wait for.
const defaultPlanTime = 30 * time.Second

// planOptions are the flags of plan.
type planOptions struct {
	form     string
	host     string
	snapshot string
	model    string
	outDir   string
	explain  bool
	compare  bool
	dump     bool
	whatif   []string
	limit    time.Duration
	fleet    string
	policy   string
}

func newPlanCmd(a *app) *cobra.Command {
	o := planOptions{form: formTable, host: hostLocal, limit: defaultPlanTime, policy: fleetBestFit}
	cmd := &cobra.Command{
		Use:   "plan LAB.yaml",
		Short: "Say where the nodes of a lab go on a host, prove that no better place exists, and write what it takes",
		Long: `Chooses devices, cores, memory and guest topology for every node of the lab on this machine, or on the machine of a snapshot, so that
the sum of published penalties is the least (docs/planner.md). Nothing is changed on the host.

The search is exact: the plan says that it is optimal, or how far from it it may be and what stopped the search. What cannot be placed is
answered with the smallest set of requests and facts that conflict, and exit status 3. What one node asks for and the host never has
is an error of the lab file, and exit status 2.

--explain adds for each choice the runner-up, what it would cost and the evidence, and what would make the host better. --compare places
the same lab by the rules of libvirt, of guides, of Nova, Kubernetes and Incus (docs/rivals.md). --out writes everything that it takes,
usable by hand: domain XML, kernel arguments, units, guest configuration, and a README with the order. It replaces an earlier plan in
one step, and refuses where anything was added to it or changed.

--whatif changes host or lab before planning and tells the difference; it can be given several times:

  swap 0000:41:00.0 0000:06:00.0   the two cards change slots
  move 0000:41:00.0 to 0           the card goes to a slot of NUMA node 0
  add node vm02                    one more lab node, like the last (or: add node vm02 like vm00)
  remove node vm01
  reserve 8                        the host keeps 8 cores
  cpus vm00 14, memory vm00 64GiB, workload gpu-compute, smt off, hugepages 2MiB
  without 0000:21:00.0, without tenants

--fleet plans many requests over many hosts, one after another; see docs/planner.md.`,
		Example: `  rackless plan examples/epyc-pair.yaml --snapshot examples/hosts/epyc-7551p.ttar --explain
  rackless plan examples/epyc-pair.yaml --snapshot examples/hosts/epyc-7551p.ttar --whatif 'reserve 8'
  rackless plan lab.yaml --out plan/
  rackless plan lab.yaml -o json | jq '.nodes[].vcpus'`,
		Args:              exactArgs(1, "LAB.yaml"),
		ValidArgsFunction: completeLabFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			if o.snapshot != "" {
				o.host = o.snapshot
			}
			if o.fleet != "" {
				return a.planFleet(cmd.Context(), o, args[0])
			}
			return a.plan(cmd.Context(), o, args[0])
		},
	}
	enumFlag(cmd, &o.form, "output", "o", "how to print the plan", formTable, formatJSON, formYAML)
	f := cmd.Flags()
	f.StringVar(&o.host, "host", o.host, "plan for `HOST`: local, or a file as inspect takes")
	f.StringVar(&o.snapshot, "snapshot", "", "plan for the machine of the snapshot `FILE`")
	f.StringVar(&o.model, "model", "", "take weights and measured GPU-NIC bandwidths from `FILE`")
	f.BoolVar(&o.explain, "explain", false, "say for each choice why, and what the next best would cost")
	f.BoolVar(&o.compare, "compare", false, "place the same lab by the rules of others, and compare")
	f.StringArrayVar(&o.whatif, "whatif", nil, "plan once more after the change `EDIT`, and tell the difference")
	f.StringVar(&o.outDir, "out", "", "write the artefacts of the plan to `DIR`")
	f.BoolVar(&o.dump, "dump-problem", false, "print the whole problem as JSON, for another solver, and do not "+
		"solve it")
	f.DurationVar(&o.limit, "time-limit", o.limit, "stop searching after this `TIME`, with the best plan so far")
	f.StringVar(&o.fleet, "fleet", "", "the argument is a file of requests, one lab a line as JSON; place them on "+
		"the hosts in `DIR`")
	enumFlag(cmd, &o.policy, "policy", "", "how --fleet chooses the host", fleetBestFit, fleetNova)
	completePlanFlags(cmd)
	return cmd
}

// check refuses flags that contradict each other, that would not count, or whose value is empty: a
// variable of a script that is not set.
func (o *planOptions) check(cmd *cobra.Command) error {
	f := cmd.Flags()
	for _, name := range []string{"host", "snapshot", "model", "out", "fleet"} {
		if f.Changed(name) && f.Lookup(name).Value.String() == "" {
			return usagef(cmd, "--%s has an empty value: name a file or directory, or leave it out", name)
		}
	}
	if f.Changed("snapshot") && f.Changed("host") {
		return usagef(cmd, "--host %s and --snapshot %s are both the host: leave one out", o.host, o.snapshot)
	}
	if o.limit <= 0 {
		return usagef(cmd, "--time-limit %v: want more than 0", o.limit)
	}
	// without refuses the flags of a list that stand beside one.
	without := func(one, why string, names ...string) error {
		for _, name := range names {
			if f.Changed(name) {
				return usagef(cmd, "--%s and --%s do not go together: %s", one, name, why)
			}
		}
		return nil
	}
	switch {
	case o.fleet != "":
		if o.form == formYAML {
			return usagef(cmd, "--fleet and -o yaml do not go together: answers are one a line, as text or "+
				"with -o json")
		}
		return without("fleet", "it places many labs on many hosts, one after another",
			"explain", "compare", "dump-problem", "out", "model", "whatif", "host", "snapshot", "time-limit")
	case f.Changed("policy"):
		return usagef(cmd, "--policy is for --fleet")
	case o.dump:
		return without("dump-problem", "it prints the problem and does not solve it", "explain", "compare", "out",
			"time-limit")
	}
	return nil
}

// completePlanFlags says what a shell offers for flags whose values are no files.
func completePlanFlags(cmd *cobra.Command) {
	host := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{hostLocal}, cobra.ShellCompDirectiveDefault // or files
	}
	// They fail only for a flag that does not exist.
	err := errors.Join(cmd.RegisterFlagCompletionFunc("host", host), cmd.RegisterFlagCompletionFunc("whatif",
		cobra.NoFileCompletions),
		cmd.RegisterFlagCompletionFunc("time-limit", cobra.NoFileCompletions), cmd.MarkFlagDirname("out"),
		cmd.MarkFlagDirname("fleet"))
	if err != nil {
		panic(err)
	}
}

// plan plans one lab on one host.
func (a *app) plan(ctx context.Context, o planOptions, labFile string) error {
	l, err := loadLab(labFile)
	if err != nil {
		return err
	}
	h, name, err := a.planHost(ctx, o.host)
	if err != nil {
		return err
	}
	q := planQuery{o: o, file: labFile, options: build.Options{HostName: name}}
	if q.options.Model, err = readModel(o.model); err != nil {
		return err
	}
	if q.options.Tenants, err = readTenants(l.Tenants); err != nil {
		return err
	}
	edits := make([]advise.Edit, len(o.whatif))
	for i, text := range o.whatif {
		if edits[i], err = advise.ParseEdit(text); err != nil {
			return usage(err) // it says --whatif's text
		}
	}
	if o.dump {
		for _, e := range edits {
			if h, l, err = e.Apply(h, l); err != nil {
				return usage(err)
			}
		}
		p, err := q.problem(h, l)
		if err != nil {
			return err
		}
		if o.form == formYAML {
			return a.printYAML(p)
		}
		return a.printJSON(p)
	}

	if len(edits) == 0 {
		r, err := a.solve(ctx, &q, h, l)
		if err != nil {
			return a.refused(&q, err)
		}
		return a.finishPlan(&q, r)
	}
	asIs := q
	asIs.o.explain, asIs.o.compare = false, false
	before, beforeErr := a.solve(ctx, &asIs, h, l)
	if beforeErr != nil && !doesNotFit(beforeErr) {
		return beforeErr
	}
	for i, e := range edits {
		if h, l, err = e.Apply(h, l); err != nil {
			return usage(err)
		}
		word := "with"
		if i > 0 {
			word = "and"
		}
		q.file += fmt.Sprintf(" %s %q", word, e)
	}
	after, err := a.solve(ctx, &q, h, l)
	if err != nil {
		return a.refused(&q, err)
	}
	// A change is often asked about because the lab does not fit as it is.
	after.whatIf = &whatIf{Edits: o.whatif, After: after.plan.Cost, Differences: []string{}}
	if beforeErr != nil {
		after.whatIf.Refused = beforeErr.Error()
	} else {
		after.before = before.plan
		after.whatIf.Before = &before.plan.Cost
		after.whatIf.Differences = append(after.whatIf.Differences, advise.Differences(before.plan, after.plan)...)
	}
	return a.finishPlan(&q, after)
}

// doesNotFit reports whether an error of solve says that host and lab do not go together.
func doesNotFit(err error) bool {
	var together *plan.Infeasible
	var alone build.RequestErrors
	return errors.As(err, &together) || errors.As(err, &alone)
}

// A planQuery is what stays the same while one command plans.
type planQuery struct {
	o       planOptions
	file    string
	options build.Options
}

// problem makes the problem of a lab on a host. Its errors say in which file the fault is, and as
// package plan knows no files, that is added here.
func (q *planQuery) problem(h *topology.Host, l *lab.Lab) (*plan.Problem, error) {
	p, err := build.Problem(h, l, q.options)
	all, ok := errors.AsType[build.RequestErrors](err)
	switch {
	case err == nil:
		return p, nil
	case ok && all[0].Key == "model":
		return nil, usage(fmt.Errorf("%s: %w", q.o.model, err))
	case ok && len(all) > 1:
		return nil, usage(fmt.Errorf("%s:\n%w", q.file, err))
	}
	return nil, usage(fmt.Errorf("%s: %w", q.file, err))
}

// A planned is a plan and what it was made of.
type planned struct {
	host   *topology.Host
	lab    *lab.Lab
	plan   *plan.Plan
	before *plan.Plan // what a what-if is compared with; nil where it does not fit as it is
	whatIf *whatIf    // nil where none is asked
	others []rivals.Outcome
}

// solve finds the plan of a lab on a host. The error of what cannot be placed is a *plan.Infeasible.
func (a *app) solve(ctx context.Context, q *planQuery, h *topology.Host, l *lab.Lab) (*planned, error) {
	p, err := q.problem(h, l)
	if err != nil {
		return nil, err
	}
	limit := func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, q.o.limit) }
	within, cancel := limit()
	defer cancel()
	r, err := search.Solve(within, p, search.Options{})
	switch {
	case ctx.Err() != nil: // interrupted: what was found so far is nobody's wish, least of all as files
		return nil, ctx.Err()
	case errors.Is(err, search.ErrInfeasible):
		within, cancel := limit() // as below
		defer cancel()
		return nil, infeasible(within, q, p)
	case errors.Is(err, search.ErrStopped):
		return nil, fmt.Errorf("no plan found in %v, and none ruled out: give it longer with --time-limit, or ask "+
			"for less", q.o.limit)
	case err != nil:
		return nil, err
	}
	if r.Stopped != "" && within.Err() != nil {
		r.Stopped = fmt.Sprintf("time limit %v", q.o.limit)
	}
	out := &planned{host: h, lab: l}
	out.plan = plan.Assemble(h, l, p, plan.Outcome{Placement: r.Placement, Bound: r.Bound, Optimal: r.Optimal,
		Stopped: r.Stopped})
	if err := verify.Plan(h, l, p, out.plan); err != nil {
		return nil, fmt.Errorf("the plan breaks its own rules, which is a fault of rackless: %w", err)
	}
	if q.o.explain {
		// What is asked beside the plan itself has its own time: a plan that took all of its own is explained too.
		within, cancel := limit()
		defer cancel()
		solver := func(ctx context.Context, p *plan.Problem) (*search.Result, error) {
			return search.Solve(ctx, p, search.Options{Steps: explainSteps})
		}
		if out.plan.Decisions, err = advise.Decisions(within, p, h, l, out.plan, r, solver); err != nil {
			return nil, err
		}
		found, err := advise.Advice(within, p, h, l, r, solver)
		if err != nil {
			return nil, err
		}
		out.plan.Advice = append(out.plan.Advice, found...) // none is [] in JSON
	}
	if q.o.compare {
		out.others = rivals.Compare(p)
	}
	return out, nil
}

// explainSteps bounds each of the searches for runners-up, of which there are a few for each lab node.
const explainSteps = 1_000_000

// infeasible returns why a lab cannot be placed.
func infeasible(ctx context.Context, q *planQuery, p *plan.Problem) error {
	reason, err := conflict.Find(ctx, p, func(ctx context.Context, p *plan.Problem) (bool, error) {
		_, err := search.Solve(ctx, p, search.Options{Steps: explainSteps})
		if errors.Is(err, search.ErrInfeasible) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("%s cannot be placed on %s; looking for the reason: %w", q.file, p.Host, err)
	}
	return reason
}

// refused prints why a lab cannot be placed, in the form that was asked for; any other error of
// solve it returns as it is.
func (a *app) refused(q *planQuery, err error) error {
	var reason *plan.Infeasible
	if !errors.As(err, &reason) {
		return err
	}
	switch q.o.form {
	case formatJSON:
		err = a.printJSON(reason)
	case formYAML:
		err = a.printYAML(reason)
	default:
		return &exitError{exitFaults, fmt.Errorf("%s cannot be placed on %s: %w", q.file, q.options.HostName, reason)}
	}
	if err != nil {
		return err
	}
	return &exitError{exitFaults, nil}
}

// finishPlan prints a plan and writes its artefacts.
func (a *app) finishPlan(q *planQuery, r *planned) error {
	if q.o.outDir != "" {
		made := fmt.Sprintf("rackless %s: plan of lab %s (%s) for %s", version, r.lab.Name, q.file, r.plan.Host.Name)
		files, err := host.Artifacts(render.Input{Plan: r.plan, Lab: r.lab, Host: r.host, Made: made})
		if err != nil {
			return err
		}
		files = withSums(files, made)
		if err := writeArtifacts(q.o.outDir, files); err != nil {
			return err
		}
		defer fmt.Fprintf(a.err, "%s in %s: begin with README.md\n", count(len(files), "file"), q.o.outDir)
	}
	document := planDocument{Plan: r.plan, Compare: r.others, WhatIf: r.whatIf}
	switch q.o.form {
	case formatJSON:
		return a.printJSON(document)
	case formYAML:
		return a.printYAML(document)
	}
	var b bytes.Buffer
	options := planview.Options{Width: a.width()}
	switch {
	case r.before != nil:
		planview.WhatIf(&b, r.before, r.plan, r.whatIf.Differences, options)
	case r.whatIf != nil:
		fmt.Fprintf(&b, "As it is, the lab does not fit: %s\nWith the change it does.\n\n", r.whatIf.Refused)
	}
	planview.Table(&b, r.plan, options)
	if q.o.explain {
		planview.Explain(&b, r.plan, options)
	}
	if q.o.compare {
		planview.Compare(&b, r.plan, r.others, options)
	}
	_, err := a.out.Write(b.Bytes())
	return err
}

// planDocument is what plan prints as JSON, see docs/json.md: the plan, and what was asked beside it.
type planDocument struct {
	*plan.Plan
	Compare []rivals.Outcome `json:"compare,omitempty"`
	WhatIf  *whatIf          `json:"whatif,omitempty"`
}

// whatIf compares the plan with that before the edits.
type whatIf struct {
	Edits       []string `json:"edits"`
	Before      *int64   `json:"cost_before,omitempty"`
	After       int64    `json:"cost_after"`
	Refused     string   `json:"refused_before,omitempty"` // why there is no plan before the edits
	Differences []string `json:"differences"`
}

// printYAML prints v with the keys of its JSON.
func (a *app) printYAML(v any) error {
	var b bytes.Buffer
	if err := writeJSON(&b, v); err != nil {
		return err
	}
	text, err := yaml.JSONToYAML(b.Bytes())
	if err != nil {
		return fmt.Errorf("print as YAML: %w", err)
	}
	_, err = a.out.Write(text)
	return err
}

// planHost reads the host to plan for, and says how to call it.
func (a *app) planHost(ctx context.Context, host string) (h *topology.Host, name string, err error) {
	switch host {
	case hostLocal:
		h, err = inspect.Read(ctx, inspect.Live())
		return h, "this machine", err
	case "-":
		h, err = inspect.ReadStream(ctx, a.in, "standard input")
		return h, "standard input", err
	}
	h, err = inspect.ReadFile(ctx, host)
	return h, host, err
}

// readModel reads the file of --model.
func readModel(path string) (*build.Model, error) {
	if path == "" {
		return nil, nil
	}
	data, err := userfile.Read(path, userfile.Text)
	if err != nil {
		return nil, usage(err)
	}
	m, err := build.ParseModel(path, data)
	if err != nil {
		return nil, usage(err)
	}
	return m, nil
}

// readTenants reads the tenants that a lab file names, in the form of "rackless inspect -o json".
// nil stands for those of the host.
func readTenants(from string) ([]topology.Tenant, error) {
	if from == lab.TenantsRead || from == lab.TenantsIgnore || from == "" {
		return nil, nil
	}
	data, err := userfile.Read(from, userfile.Data)
	if err != nil {
		return nil, usage(err)
	}
	tenants, err := parseTenants(data)
	if err != nil {
		return nil, usage(fmt.Errorf("%s: not a list of tenants as in \"rackless inspect -o json | jq .tenants\": %w",
			from, err))
	}
	return tenants, nil
}

// parseTenants reads one list of tenants as JSON. An empty one is not nil.
func parseTenants(data []byte) ([]topology.Tenant, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var tenants []topology.Tenant
	err := d.Decode(&tenants)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("something stands behind the list")
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("the file is empty: want [] for none")
	case err != nil:
		return nil, fmt.Errorf("%s%w", jsonLine(data, err), err)
	case tenants == nil:
		return nil, errors.New("null: want [] for none")
	}
	return tenants, nil
}

// jsonLine returns the line that an error of package json is about, "line 5: "; empty where it does not say.
func jsonLine(data []byte, err error) string {
	var offset int64
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = e.Offset
	} else if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		offset = e.Offset
	}
	if offset <= 0 || offset > int64(len(data)) {
		return ""
	}
	return fmt.Sprintf("line %d: ", 1+bytes.Count(data[:offset-1], []byte("\n")))
}
