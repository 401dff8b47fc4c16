package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/check"
	"github.com/rackless/rackless/facts"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/topology"
)

// verifyOptions are the flags of verify.
type verifyOptions struct {
	form     string
	only     []string
	plan     string
	snapshot string
	watch    bool
	interval time.Duration
}

func newVerifyCmd(a *app) *cobra.Command {
	o := verifyOptions{form: formatText, interval: 10 * time.Second}
	cmd := &cobra.Command{
		Use:   "verify NAME|LAB.yaml",
		Short: "Check every fact of a running lab or a prepared host, with evidence and fixes",
		Long: `Checks the running lab from inside its nodes: links, MTU, active IB MTU, GID tables and the RoCE v2 GID index (found, never
assumed), every peer at full MTU without fragmentation, RDMA messages around the ring with the device counters before
and after, and that no two nodes share a name, an address or a random state.

With --plan it compares a host with a plan that "rackless plan -o json" printed, in place of a lab: isolated CPUs and their siblings,
interrupts and threads of others on them, hugepages by NUMA node, IOMMU groups, drivers, links, virtual functions. The host is this
machine, or that of --snapshot, which shows all but what runs.

--watch goes on until Ctrl-C, and prints what stops holding and what holds again. "rackless explain" lists all checks, and explains
each. Ends with status 3 if a check failed, or could not be made.`,
		Example: `  rackless verify pair
  rackless verify pair -o junit > verify.xml
  rackless verify pair --watch --only link,RL402
  rackless verify --plan plan.json
  rackless verify --plan plan.json --snapshot host.tar.zst`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("plan") {
				return exactArgs(0, "no lab beside --plan")(cmd, args)
			}
			return exactArgs(1, "the name of a lab or a lab file")(cmd, args)
		},
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			v, err := a.verification(cmd.Context(), &o, args)
			if err != nil {
				return err
			}
			defer v.close()
			if o.watch {
				return a.watchVerify(cmd.Context(), &o, v)
			}
			return a.verifyOnce(cmd.Context(), &o, v)
		},
	}
	enumFlag(cmd, &o.form, "output", "o", "how to print the result", formatText, formatJSON, formJUnit)
	f := cmd.Flags()
	f.StringSliceVar(&o.only, "only", nil, "make only these checks, comma-separated, by name or RL number; see "+
		"rackless explain")
	f.StringVar(&o.plan, "plan", "", "compare a host with the plan in `FILE`, as plan -o json prints it")
	f.StringVar(&o.snapshot, "snapshot", "", "with --plan: the host of the snapshot `FILE`, and not this machine")
	f.BoolVarP(&o.watch, "watch", "w", false, "check again and again, and print what changes")
	f.DurationVar(&o.interval, "interval", o.interval, "time between two checks, with --watch")
	// They fail only for a flag that does not exist.
	err := errors.Join(cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(check.IDs(),
		cobra.ShellCompDirectiveNoFileComp)),
		cmd.RegisterFlagCompletionFunc("interval", cobra.NoFileCompletions))
	if err != nil {
		panic(err)
	}
	return cmd
}

// formJUnit is the form that servers of continuous integration read.
const formJUnit = "junit"

// check refuses flags that contradict each other, and turns the names of checks into identifiers.
func (o *verifyOptions) check(cmd *cobra.Command) error {
	f := cmd.Flags()
	for _, name := range []string{"plan", "snapshot"} {
		if f.Changed(name) && f.Lookup(name).Value.String() == "" {
			return usagef(cmd, "--%s has an empty value: name a file, or leave it out", name)
		}
	}
	const least = time.Second
	switch {
	case o.snapshot != "" && o.plan == "":
		return usagef(cmd, "--snapshot %s: a host is compared with a plan: add --plan", o.snapshot)
	case o.snapshot != "" && o.watch:
		return usagef(cmd, "--watch and --snapshot do not go together: a snapshot does not change")
	case o.watch && o.form == formJUnit:
		return usagef(cmd, "--watch and -o junit do not go together: a report in XML has an end")
	case f.Changed("interval") && !o.watch:
		return usagef(cmd, "--interval is for --watch")
	case o.interval < least:
		return usagef(cmd, "--interval %v: want %v or more", o.interval, least)
	}
	for i, name := range o.only {
		id, ok := check.Lookup(name)
		if !ok {
			return usage(fmt.Errorf("--only %s: no such check; rackless explain lists them", name))
		}
		o.only[i] = id
	}
	return nil
}

// A verification is what is looked at. Parts that are nil are left out.
type verification struct {
	plan   *plan.Plan
	unseen string // what is left out though the lab has it, and why; "" if nothing is

	host    func(context.Context) (*topology.Host, error)
	running func(context.Context) (*facts.Running, error) // what runs on host
	domains func(context.Context) ([]check.Domain, error) // virtual machines of the plan
	lab     *lab.Lab                                      // whose nodes are looked at by nodes
	nodes   check.Reader
	close   func()
}

// applies returns the identifiers of the checks that can be made.
func (v *verification) applies() []string {
	labIDs := check.LabIDs()
	return slices.DeleteFunc(check.IDs(), func(id string) bool {
		code := check.Code(id)
		switch {
		case slices.Contains(labIDs, id):
			return v.lab == nil
		case strings.HasPrefix(code, "RL2"):
			return v.plan == nil || v.host == nil
		case strings.HasPrefix(code, "RL3"):
			return v.domains == nil
		}
		return v.plan == nil || v.lab == nil
	})
}

// verification says what there is to verify.
func (a *app) verification(ctx context.Context, o *verifyOptions, args []string) (*verification, error) {
	v := &verification{close: func() {}}
	if o.plan != "" {
		p, err := readPlan(o.plan)
		if err != nil {
			return nil, err
		}
		v.plan = p
		host := hostLocal
		if o.snapshot != "" {
			host = o.snapshot
		} else {
			v.running = func(ctx context.Context) (*facts.Running, error) {
				return facts.ReadRunning(ctx, os.DirFS("/"))
			}
		}
		v.host = func(ctx context.Context) (*topology.Host, error) {
			h, _, err := a.planHost(ctx, host)
			return h, err
		}
	} else {
		r, err := a.openVerified(args[0])
		if err != nil {
			return nil, err
		}
		v.lab, v.nodes, v.close = r.Lab, r, func() { r.Close() }
		if r.State.Placed() {
			if err := v.place(ctx, r); err != nil {
				v.close()
				return nil, err
			}
		}
	}
	for _, id := range o.only {
		if !slices.Contains(v.applies(), id) {
			v.close()
			what := "a running lab"
			if v.plan != nil {
				what = "a host and its plan"
			}
			return nil, usage(fmt.Errorf("--only %s: it is not among the checks of %s: %s", id, what,
				strings.Join(v.applies(), ", ")))
		}
	}
	return v, nil
}

// openVerified opens the running lab that is named.
func (a *app) openVerified(arg string) (*rack.Rack, error) {
	name, err := labName(arg)
	if err != nil {
		return nil, err
	}
	d, err := a.dirs()
	if err != nil {
		return nil, err
	}
	return rack.Open(d, name)
}

// maxPlan bounds the file of a plan, in bytes: 500 lab nodes of 256 virtual CPUs each take a tenth.
const maxPlan = 64 << 20

// readPlan reads what plan -o json printed.
func readPlan(path string) (*plan.Plan, error) {
	data, err := readLimited(path, maxPlan)
	if err != nil {
		return nil, err
	}
	var p plan.Plan
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, usage(fmt.Errorf("%s: not a plan as \"rackless plan -o json\" prints it: %s%w", path,
			jsonLine(data, err), err))
	}
	if p.Schema != plan.Schema {
		return nil, usage(fmt.Errorf("%s: schema is %q; want %q, as \"rackless plan -o json\" prints it", path,
			p.Schema, plan.Schema))
	}
	return &p, nil
}

// findings makes all checks of what is there to verify: of the host, of the virtual machines, and
// of the nodes from inside.
func (v *verification) findings(ctx context.Context, only []string, progress func(what string)) ([]check.Finding,
	error) {
	var all []check.Finding
	var h *topology.Host
	wanted := func(prefixes ...string) bool {
		return len(only) == 0 || slices.ContainsFunc(only, func(id string) bool {
			return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(check.Code(id), p) })
		})
	}
	var domains []check.Domain
	var err error
	if v.domains != nil && wanted("RL2", "RL3") {
		progress("read the virtual machines")
		if domains, err = v.domains(ctx); err != nil {
			return nil, err
		}
	}
	if v.host != nil {
		progress("read the host")
		if h, err = v.host(ctx); err != nil {
			return nil, err
		}
	}
	if v.host != nil && wanted("RL2") {
		var run *facts.Running
		if v.running != nil {
			progress("read what runs on the host")
			if run, err = v.running(ctx); err != nil {
				return nil, err
			}
		}
		var own []int
		for _, d := range domains {
			if d.PID > 0 {
				own = append(own, d.PID)
			}
		}
		all = append(all, check.Host(v.plan, h, run, own...)...)
	}
	if v.domains != nil {
		all = append(all, check.Domains(v.plan, h, domains)...)
	}
	if v.nodes != nil {
		ofLab := func(id string) bool { return slices.Contains(check.LabIDs(), id) }
		inLab := slices.DeleteFunc(slices.Clone(only), func(id string) bool { return !ofLab(id) })
		if len(only) == 0 || len(inLab) > 0 {
			found, err := check.Lab(ctx, v.lab, v.nodes, inLab, progress)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		ofGuests := func(id string) bool { return strings.HasPrefix(check.Code(id), "RL4") && !ofLab(id) }
		if v.plan != nil && (len(only) == 0 || slices.ContainsFunc(only, ofGuests)) {
			progress("compare the nodes with the plan")
			all = append(all, check.Guests(v.plan, h, readNodes(ctx, v.lab, v.nodes))...)
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	// That a node does not answer is no check of its own, and must not be lost.
	return slices.DeleteFunc(all, func(f check.Finding) bool {
		return len(only) > 0 && !slices.Contains(only, f.ID) && !check.Silent(f)
	}), nil
}

// readNodes asks every node of itself. One that does not answer is left out.
func readNodes(ctx context.Context, l *lab.Lab, r check.Reader) map[string]*facts.Node {
	nodes := make(map[string]*facts.Node)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, n := range l.Nodes {
		wg.Go(func() {
			f, err := r.Facts(ctx, n.Name)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			nodes[n.Name] = f
		})
	}
	wg.Wait()
	return nodes
}

// verifyOnce makes the checks and prints what they found.
func (a *app) verifyOnce(ctx context.Context, o *verifyOptions, v *verification) error {
	ui := newUI(a.err, a.env)
	p := &rack.Progress{Report: ui.event}
	findings, err := v.findings(ctx, o.only, p.Begin)
	p.End(err)
	ui.close()
	if err != nil {
		return err
	}
	if v.unseen != "" {
		fmt.Fprintf(a.err, "not checked: %s\n", v.unseen)
	}
	a.keep(o, v, findings)
	switch o.form {
	case formatJSON:
		if findings == nil {
			findings = []check.Finding{} // none is [] in JSON
		}
		err = a.printJSON(findings)
	case formJUnit:
		err = writeJUnit(a.out, findings)
	default:
		printFindings(a.out, findings, a.color())
		fmt.Fprintf(a.out, "%d checks, %d not ok\n", len(findings), len(failed(findings)))
	}
	if err == nil && len(failed(findings)) > 0 {
		return &exitError{exitFaults, nil} // all has been said
	}
	return err
}

// keep leaves the findings of a whole verify for rackless ui to show. That it cannot is no fault of the lab.
func (a *app) keep(o *verifyOptions, v *verification, findings []check.Finding) {
	if v.lab == nil || len(o.only) > 0 {
		return
	}
	d, err := a.dirs()
	if err == nil {
		err = keepFindings(d, v.lab.Name, keptFindings{At: time.Now().UTC(), Findings: findings})
	}
	if err != nil {
		fmt.Fprintf(a.err, "rackless ui will not show these findings: %v\n", err)
	}
}

// painter returns the function that colours text, where color is set.
func painter(color bool) func(code, s string) string {
	return func(code, s string) string {
		if !color {
			return s
		}
		return "\x1b[" + code + "m" + s + "\x1b[0m"
	}
}

// printFindings prints one line a finding, and below what is not OK what was wanted and the fix.
func printFindings(w io.Writer, all []check.Finding, color bool) {
	paint := painter(color)
	subject, title := 0, 0
	for _, f := range all {
		subject, title = max(subject, len(f.Subject)), max(title, len(f.Title))
	}
	for _, f := range all {
		status := map[check.Status]string{check.OK: paint("32", "ok     "), check.Failed: paint("31", "FAILED "),
			check.Unknown: paint("33", "unknown")}[f.Status]
		fmt.Fprintf(w, "%s %-*s  %-*s  %s\n", status, subject, f.Subject, title, f.Title, f.Have)
		if f.Status == check.OK {
			continue
		}
		for _, line := range []struct{ what, text string }{{"want", f.Want}, {"read", f.Evidence}, {"fix", f.Fix},
			{"more", "rackless explain " + f.Code}} {
			if line.text != "" {
				fmt.Fprintf(w, "        %-4s  %s\n", line.what, line.text)
			}
		}
	}
}
