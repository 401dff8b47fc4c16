package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/report/tables"
	"github.com/rackless/rackless/study/document"
	"github.com/rackless/rackless/study/recommend"
)

type recommendOptions struct {
	hostFlag
	studies  []string
	db       string
	workload string
	modelOut string
	format   string
}

func newRecommendCmd(a *app) *cobra.Command {
	var o recommendOptions
	cmd := &cobra.Command{
		Use:               "recommend [LAB.yaml]",
		Short:             "Recommend a configuration for a lab on a host, and name the measurements behind it",
		Args:              cli.MaxArgs(1, "one LAB.yaml"),
		ValidArgsFunction: completeLabFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd, "a file", "model-out", "db"); err != nil {
				return err
			}
			file, err := labFile(cmd, args)
			if err != nil {
				return err
			}
			return a.recommend(cmd.Context(), o, file)
		},
	}
	f := cmd.Flags()
	o.add(cmd, "for")
	f.StringArrayVar(&o.studies, "study", nil, "use only the study `NAME`; can be given several times")
	dbFlag(cmd, &o.db)
	cli.EnumFlag(cmd, &o.workload, "workload", "", "what the lab is for, instead of what its file says",
		string(lab.WorkloadRDMALatency), string(lab.WorkloadRDMABandwidth),
		string(lab.WorkloadGPUCompute), string(lab.WorkloadGPUCollective), string(lab.WorkloadCPUBandwidth),
		string(lab.WorkloadMixed))
	f.StringVar(&o.modelOut, "model-out", "", "write the planner's model to `FILE`, for plan --model")
	outputFlag(cmd, &o.format)
	return cmd
}

func (a *app) recommend(ctx context.Context, o recommendOptions, labFile string) error {
	l, err := loadLab(labFile)
	if err != nil {
		return err
	}
	if o.workload != "" {
		l.Workload = lab.Workload(o.workload)
	}
	h, name, err := a.hosts().Read(ctx, o.host)
	if err != nil {
		return err
	}
	out, err := a.recommendation(ctx, h, name, l, labFile, o.db, o.studies)
	if err != nil {
		return err
	}
	if err = a.print(o.format, out, out.Text()); err != nil || o.modelOut == "" {
		return err
	}
	return a.writeModel(o.modelOut, out.Model)
}

// recommendation includes the changes that a model fitted to studies and documents would make to the plan.
func (a *app) recommendation(ctx context.Context, h *topology.Host, name string, l *lab.Lab, labFile, db string,
	named []string) (out tables.Recommendation, err error) {
	// Plan without a model first, for the comparison.
	q, err := planner.New(name, labFile, l, "")
	if err != nil {
		return out, cli.Usage(err)
	}
	studies, err := a.recordedStudies(ctx, db, named)
	if err != nil {
		return out, err
	}
	out = tables.Recommendation{Plan: tables.PlanEffect{Differences: []string{}}}
	// Even a lab that does not fit has a configuration.
	p, err := q.Problem(h, l)
	if err != nil {
		if !planner.DoesNotFit(err) {
			return out, err
		}
		p, out.Plan.Refused = nil, err.Error()
	}
	if out.Recommendation, err = recommend.Recommend(h, l, p, studies, recommend.Documents()); err != nil {
		return out, err
	}
	out.Host = name
	// Each plan takes a search.
	if out.Model != nil && p != nil {
		changes, refused, err := q.ModelChanges(ctx, h, l, out.Model)
		if err != nil {
			return out, err
		}
		out.Plan = tables.PlanEffect{Differences: append(out.Plan.Differences, changes...), Refused: refused}
	}
	return out, nil
}

func (a *app) recordedStudies(ctx context.Context, path string, names []string) ([]recommend.Study, error) {
	db, err := a.readStudies(ctx, path)
	// A named file or study must exist. The default file may be missing.
	if errors.Is(err, os.ErrNotExist) && len(names) == 0 && path == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return document.Evidence(ctx, db, names)
}

func (a *app) writeModel(path string, m *build.Model) error {
	// An empty file would make plan --model fail later and elsewhere.
	if m == nil {
		return fmt.Errorf("no model is written to %s: nothing that the planner's model takes was measured on this host",
			path)
	}
	var b bytes.Buffer
	if err := show.Encode(&b, formatJSON, m); err != nil {
		return err
	}
	if err := atomicfile.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(a.err, "the model is in %s: rackless plan LAB.yaml --model %s\n", path, path)
	return nil
}
