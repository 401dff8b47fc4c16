package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/report/studyview"
	"github.com/rackless/rackless/report/tables"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/document"
	"github.com/rackless/rackless/study/store"
)

func newStudyCmd(a *app) *cobra.Command {
	return grouping("study", "Find out whether settings matter, by runs in random order and intervals",
		newStudyRunCmd(a), newStudyMergeCmd(a), newStudyReportCmd(a), newStudyLsCmd(a), newStudyRmCmd(a),
		newResultsQueryCmd(a), newResultsRawCmd(a), newResultsImportCmd(a))
}

func dbFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "db", "", "`FILE` that studies are kept in (default: studies.db in the directory "+
		"of data)")
}

func (a *app) dbPath(path string) (string, error) {
	if path != "" {
		return path, nil
	}
	d, err := a.dirs()
	return filepath.Join(d.Data, "studies.db"), err
}

func newStudyReportCmd(a *app) *cobra.Command {
	var path, format, out string
	cmd := &cobra.Command{
		Use:   "report NAME|STUDY.yaml",
		Short: "Report a study: effects with intervals, verdicts, disturbed runs",
		Args:  cli.ExactArgs(1, "the name of a study, which rackless study ls shows, or its file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			doc, err := a.studyDocument(cmd.Context(), path, args[0])
			if err != nil {
				return err
			}
			write := func(w io.Writer) error {
				return studyview.Write(w, format, doc, studyview.Options{Color: a.color(), Width: a.width()})
			}
			if out == "" {
				return write(a.out)
			}
			return atomicfile.Write(out, 0o644, write)
		},
	}
	dbFlag(cmd, &path)
	format = formatText
	cli.EnumFlag(cmd, &format, "output", "o", "how to print it", formatText, "md", formatJSON, formatYAML, "csv",
		formHTML)
	cli.Renamed(cmd, "format", "", "output")
	cmd.Flags().StringVar(&out, "out", "", "write to `FILE` instead of printing")
	return cmd
}

func (a *app) studyDocument(ctx context.Context, path, name string) (*study.Document, error) {
	repeat := ""
	var file *study.Spec
	// The report can repeat the command for a study file's runs.
	if ext := filepath.Ext(name); ext == ".yaml" || ext == ".yml" {
		spec, _, err := document.ReadSpec(name)
		if err != nil {
			return nil, cli.Usage(err)
		}
		file, repeat, name = spec, "rackless study run "+name, spec.Name
	}
	db, err := a.readStudies(ctx, path)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return document.Load(ctx, db, name, repeat, file)
}

func newStudyLsCmd(a *app) *cobra.Command {
	var path, format string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List studies and their number of runs",
		Args:  cli.MaxArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := document.List{Studies: []document.Entry{}}
			db, err := a.readStudies(cmd.Context(), path)
			switch {
			case errors.Is(err, os.ErrNotExist):
			case err != nil:
				return err
			default:
				defer db.Close()
				if out.Studies, err = document.Entries(cmd.Context(), db); err != nil {
					return err
				}
			}
			if len(out.Studies) == 0 {
				return a.print(format, out, "no study has been run; run one with: rackless study run STUDY.yaml\n")
			}
			return a.print(format, out, tables.Studies(out.Studies))
		},
	}
	dbFlag(cmd, &path)
	outputFlag(cmd, &format)
	return cmd
}

func (a *app) readStudies(ctx context.Context, path string) (*store.DB, error) {
	path, err := a.dbPath(path)
	if err != nil {
		return nil, err
	}
	return document.Open(ctx, path)
}

func newStudyRmCmd(a *app) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "rm NAME",
		Short: "Delete a study with all its runs",
		Args:  cli.ExactArgs(1, "the name of a study, which rackless study ls shows"),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := a.dbPath(path)
			if err != nil {
				return err
			}
			// Open would create a file.
			if _, err := os.Stat(path); err != nil {
				return document.None(err)
			}
			db, err := store.Open(cmd.Context(), path)
			if err != nil {
				return err
			}
			return errors.Join(db.Remove(cmd.Context(), args[0]), db.Close())
		},
	}
	dbFlag(cmd, &path)
	return cmd
}
