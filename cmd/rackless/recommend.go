package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan/advise"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/planner"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/recommend"
	"github.com/rackless/rackless/study/store"
	"github.com/rackless/rackless/topology"
)

// recommendOptions are the flags of recommend.
type recommendOptions struct {
	host     string
	snapshot string
	studies  []string
	db       string
	workload string
	modelOut string
	format   string
}

func newRecommendCmd(a *app) *cobra.Command {
	o := recommendOptions{host: planner.Local}
	cmd := &cobra.Command{
		Use:   "recommend LAB.yaml",
		Short: "Say which configuration a lab should have on a host, and on whose measurements that rests",
		Long: `Chooses pinning, guest NUMA, SMT siblings, isolation, page size, MTU and which GPU goes with which NIC: from studies of this host
where there are some, from published figures where not, and says for each which it was. What is undecided or confounded decides
nothing, and neither does what was measured on emulated machines. Where a setting makes no difference, the one that changes less of
the host is taken. Where studies and documents say different things, both are named.

All studies in the file of studies are looked at, or those that --study names. Measured GPU-NIC bandwidths, and weights that the
studies determine, make a model for the planner: --model-out writes it for rackless plan --model, and what it would change in the
plan is said. docs/recommend.md has the rules and the formulas. Nothing is changed on the host.`,
		Example: `  rackless recommend lab.yaml
  rackless recommend examples/epyc-pair.yaml --snapshot examples/hosts/epyc-7551p.ttar
  rackless recommend lab.yaml --study contention --model-out model.json`,
		Args:              exactArgs(1, "LAB.yaml"),
		ValidArgsFunction: completeLabFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			f := cmd.Flags()
			for _, name := range []string{"host", "snapshot", "model-out", "db"} {
				if f.Changed(name) && f.Lookup(name).Value.String() == "" {
					return usagef(cmd, "--%s has an empty value: name a file, or leave it out", name)
				}
			}
			if f.Changed("snapshot") && f.Changed("host") {
				return usagef(cmd, "--host %s and --snapshot %s are both the host: leave one out", o.host, o.snapshot)
			}
			if o.snapshot != "" {
				o.host = o.snapshot
			}
			return a.recommend(cmd.Context(), o, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.host, "host", o.host, "for `HOST`: local, or a file as inspect takes")
	f.StringVar(&o.snapshot, "snapshot", "", "for the machine of the snapshot `FILE`")
	f.StringArrayVar(&o.studies, "study", nil, "look at the study `NAME` only; can be given several times")
	dbFlag(cmd, &o.db)
	enumFlag(cmd, &o.workload, "workload", "", "what the lab is for, in place of what its file says",
		string(lab.WorkloadRDMALatency), string(lab.WorkloadRDMABandwidth),
		string(lab.WorkloadGPUCompute), string(lab.WorkloadGPUCollective), string(lab.WorkloadCPUBandwidth),
		string(lab.WorkloadMixed))
	f.StringVar(&o.modelOut, "model-out", "", "write the planner's model to `FILE`, for plan --model")
	outputFlag(cmd, &o.format)
	return cmd
}

// recommendOutput is what recommend prints as JSON, see docs/json.md.
type recommendOutput struct {
	*recommend.Recommendation
	Plan recommendPlan `json:"plan"`
}

// recommendPlan is what the model does to the plan of the lab.
type recommendPlan struct {
	// Differences are those between the plan with published figures and that with the model; none
	// where there is no model.
	Differences []string `json:"differences"`
	// Refused is why the lab cannot be placed on the host, so that no weights can be fitted and no plans compared.
	Refused string `json:"refused,omitempty"`
}

func (a *app) recommend(ctx context.Context, o recommendOptions, labFile string) error {
	l, err := loadLab(labFile)
	if err != nil {
		return err
	}
	if o.workload != "" {
		l.Workload = lab.Workload(o.workload)
	}
	h, name, err := a.planHost(ctx, o.host)
	if err != nil {
		return err
	}
	q, err := planner.New(name, labFile, l, "")
	if err != nil {
		return usage(err)
	}
	studies, err := a.recordedStudies(ctx, o.db, o.studies)
	if err != nil {
		return err
	}
	out := recommendOutput{Plan: recommendPlan{Differences: []string{}}}
	// A lab that does not fit has a configuration all the same.
	p, err := q.Problem(h, l)
	if err != nil {
		if !planner.DoesNotFit(err) {
			return err
		}
		p, out.Plan.Refused = nil, err.Error()
	}
	if out.Recommendation, err = recommend.Recommend(h, l, p, studies, recommend.Documents()); err != nil {
		return err
	}
	out.Host = name
	if out.Model != nil && p != nil {
		if err := comparePlans(ctx, q, h, l, &out); err != nil {
			return err
		}
	}
	err = a.list(o.format, out, func() error {
		var b bytes.Buffer
		recommendText(&b, &out)
		_, err := a.out.Write(b.Bytes())
		return err
	})
	if err != nil || o.modelOut == "" {
		return err
	}
	return a.writeModel(o.modelOut, out.Model)
}

// comparePlans says what the model changes in the plan.
func comparePlans(ctx context.Context, q planner.Query, h *topology.Host, l *lab.Lab,
	out *recommendOutput) error {
	before, err := q.Solve(ctx, h, l)
	if err == nil {
		q.Model, q.ModelFile = out.Model, "the fitted model"
		var after *planner.Planned
		if after, err = q.Solve(ctx, h, l); err == nil {
			out.Plan.Differences = append(out.Plan.Differences, advise.Differences(before.Plan, after.Plan)...)
			return nil
		}
	}
	if planner.DoesNotFit(err) {
		out.Plan.Refused = err.Error()
		return nil
	}
	return err
}

// recordedStudies reads studies from their file: those that are named, or all. Studies that have no
// figures yet are left out unless they are named.
func (a *app) recordedStudies(ctx context.Context, path string, names []string) ([]recommend.Study, error) {
	db, err := a.readStudies(ctx, path)
	if errors.Is(err, os.ErrNotExist) && len(names) == 0 && path == "" {
		return nil, nil // nobody has run one yet
	}
	if err != nil {
		return nil, err
	}
	defer db.Close()
	all := len(names) == 0
	if all {
		found, err := db.Studies(ctx)
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			names = append(names, s.Name)
		}
	}
	var out []recommend.Study
	for _, name := range names {
		s, err := recordedStudy(ctx, db, name)
		if err != nil {
			return nil, err
		}
		if all && !s.Measured() {
			continue
		}
		out = append(out, *s)
	}
	return out, nil
}

func recordedStudy(ctx context.Context, db *store.DB, name string) (*recommend.Study, error) {
	rec, err := conduct.Load(ctx, db, name)
	if err != nil {
		return nil, err
	}
	s := &recommend.Study{Name: name, Data: rec.Data, Environment: rec.Environment, Emulated: rec.Emulated}
	if rec.Study.Lab != "" { // imported ones have none
		// A file that an older version wrote may be wrong by now: the study is good without it.
		if l, err := lab.Parse("lab of study "+name, []byte(rec.Study.Lab)); err == nil {
			s.Lab = l
		}
	}
	return s, nil
}

// writeModel writes the model, whole or not at all.
func (a *app) writeModel(path string, m *build.Model) error {
	if m == nil {
		return fmt.Errorf("no model is written to %s: nothing that the planner's model takes was measured on this host",
			path)
	}
	var b bytes.Buffer
	if err := writeJSON(&b, m); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", b.Bytes(), 0o644); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	fmt.Fprintf(a.err, "the model is in %s: rackless plan LAB.yaml --model %s\n", path, path)
	return nil
}

// recommendText prints a recommendation for people.
func recommendText(b *bytes.Buffer, r *recommendOutput) {
	fmt.Fprintf(b, "lab %s (%s) on %s\n", r.Lab, r.Workload, r.Host)
	if len(r.Studies) == 0 {
		fmt.Fprintln(b, "no study was made: published figures and defaults")
	}
	for _, s := range r.Studies {
		fmt.Fprintf(b, "study %s: %s: %s\n", s.Study, s.Carry, s.Why)
		for _, c := range s.Confounds {
			fmt.Fprintf(b, "  it may be fooled: %s\n", c)
		}
	}
	g := newGrid("setting", "recommended", "lab and planner have", "confidence")
	for _, c := range r.Settings {
		g.add(string(c.Setting), c.Level, c.Now, string(c.Confidence))
	}
	fmt.Fprintf(b, "\n%s", g)
	for _, c := range r.Settings {
		fmt.Fprintf(b, "\n%s: %s\n", c.Setting, c.Level)
		for _, w := range c.Why {
			fmt.Fprintf(b, "  %s\n", w)
		}
		for _, w := range c.Contradictions {
			fmt.Fprintf(b, "  against: %s\n", w)
		}
		for _, e := range c.Evidence {
			if !e.Decides {
				fmt.Fprintf(b, "  not counted: %s to %s, %s of %s: %s (%s): %s\n", e.From, e.To,
					strings.ReplaceAll(e.Metric, "_", " "), e.Test, e.Effect, e.Source, e.Remark)
			}
		}
	}
	recommendGPUs(b, r.Rankings)
	fmt.Fprintln(b, "\nthe planner's model")
	for _, f := range r.Fitted {
		fmt.Fprintf(b, "  %s %d in place of %d: %s\n", f.Weight, f.Value, f.Published, f.How)
	}
	if r.Model != nil && len(r.Model.Pairs) > 0 {
		fmt.Fprintf(b, "  %s\n", count(len(r.Model.Pairs), "measured GPU-NIC pair"))
	}
	for _, k := range r.Kept {
		fmt.Fprintf(b, "  as published: %s\n", k)
	}
	switch {
	case r.Plan.Refused != "":
		fmt.Fprintf(b, "  no plan: %s\n", r.Plan.Refused)
	case r.Model == nil:
		fmt.Fprintln(b, "  no model: the plan is that of rackless plan")
	case len(r.Plan.Differences) == 0:
		fmt.Fprintln(b, "  with it the plan is the same")
	default:
		fmt.Fprintln(b, "  with it the plan changes:")
		for _, d := range r.Plan.Differences {
			fmt.Fprintf(b, "    %s\n", d)
		}
	}
}

// recommendGPUs prints which GPUs are best for each NIC: in a table where they were measured, by
// classes on a line where not.
func recommendGPUs(b *bytes.Buffer, all []recommend.Ranking) {
	for _, k := range all {
		fmt.Fprintf(b, "\nGPUs for %s, the best first: %s (%s)\n", k.NIC, k.Source, k.Carry)
		if k.Carry == recommend.NoEvidence {
			line := ""
			for i, x := range k.GPUs {
				switch {
				case i == 0:
					line = fmt.Sprintf("  %s: %s", x.Path, x.GPU)
				case x.Tied:
					line += ", " + x.GPU
				default:
					line += fmt.Sprintf("; %s: %s", x.Path, x.GPU)
				}
			}
			fmt.Fprintln(b, line)
			continue
		}
		g := newGrid("gpu", "path", "bandwidth>", "place")
		for i, x := range k.GPUs {
			bandwidth, place := "", fmt.Sprint(i+1)
			if x.Gbps > 0 {
				bandwidth = fmt.Sprintf("%.2f Gb/s", x.Gbps)
			}
			if x.Tied {
				place += ", not told from the one above"
			}
			g.add(x.GPU, x.Path, bandwidth, place)
		}
		for line := range strings.Lines(g.String()) {
			b.WriteString("  " + line)
		}
	}
}
