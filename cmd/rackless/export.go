package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/plan/render"
	"github.com/rackless/rackless/plan/render/directory"
	"github.com/rackless/rackless/plan/render/export"
)

func newExportCmd(a *app) *cobra.Command {
	var host hostFlag
	var outDir string
	var names, table []string
	for _, f := range export.Formats() {
		names = append(names, f.Name)
		table = append(table, fmt.Sprintf("  %-17s  %s", f.Name, f.Files))
	}
	cmd := &cobra.Command{
		Use:   "export FORMAT [LAB.yaml]",
		Short: "Write a lab for another system: KubeVirt, OpenStack, Proxmox VE, Slurm and more",
		Long:  strings.Join(table, "\n"), // for the %s in the help
		Args:  cli.RangeArgs(1, 2, "a format ("+words.Or(names)+") and one LAB.yaml"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return names, cobra.ShellCompDirectiveNoFileComp
			}
			return completeLabFiles(cmd, args[1:], word)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			format, ok := export.Find(args[0])
			if !ok {
				return cli.Usagef(cmd, "format %q: want %s", args[0], words.Or(names))
			}
			if err := host.check(cmd, "a file or directory", "out"); err != nil {
				return err
			}
			if format.Unplaced {
				given := func(name string) bool { return cmd.Flags().Changed(name) }
				if i := slices.IndexFunc([]string{"host", "out"}, given); i >= 0 {
					return cli.Usagef(cmd, "%s is one file, of the lab alone: leave out --%s", format.Name,
						[]string{"host", "out"}[i])
				}
			}
			file, err := labFile(cmd, args[1:])
			if err != nil {
				return err
			}
			return a.export(cmd.Context(), format, file, host.host, outDir)
		},
	}
	host.add(cmd, "plan for")
	cmd.Flags().StringVar(&outDir, "out", "", "write the files to `DIR`")
	cli.Offer(cmd, "out", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	})
	return cmd
}

func (a *app) export(ctx context.Context, format export.Format, file, host, outDir string) error {
	l, err := loadLab(file)
	if err != nil {
		return err
	}
	in := render.Input{Lab: l, Made: fmt.Sprintf("rackless %s: lab %s (%s)", version, l.Name, file)}
	if !format.Unplaced {
		r, err := a.planAt(ctx, planner.HostOf(l, host), l, file, "")
		if err != nil {
			return err
		}
		in = inputOf(r, file)
	}
	files, err := format.Render(in)
	if err != nil {
		return err
	}
	if outDir == "" {
		_, err = a.out.Write(export.Stream(files))
		return err
	}
	// It marks the directory as one of an export.
	made, err := render.PlanFile(in.Plan)
	if err != nil {
		return err
	}
	said, err := writeFiles(outDir, append(files, made), in.Made)
	fmt.Fprint(a.err, said)
	return err
}

func inputOf(r *planner.Planned, file string) render.Input {
	return render.Input{Plan: r.Plan, Lab: r.Lab, Host: r.Host,
		Made: fmt.Sprintf("rackless %s: plan of lab %s (%s) for %s", version, r.Lab.Name, file, r.Plan.Host.Name)}
}

// writeFiles also writes checksums, by which a later plan detects edits before it replaces the files.
func writeFiles(dir string, files []render.Artifact, made string) (said string, err error) {
	first := files[0].Path
	files = directory.WithSums(files, made)
	if err := directory.Write(dir, files); err != nil {
		if _, refused := errors.AsType[*directory.RefusedError](err); refused {
			return "", cli.Usage(fmt.Errorf("--out: %w", err))
		}
		return "", err
	}
	return fmt.Sprintf("%s in %s: begin with %s\n", words.Count(len(files), "file"), dir, first), nil
}
