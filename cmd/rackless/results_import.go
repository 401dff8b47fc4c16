package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/importer"
	"github.com/rackless/rackless/study/store"
)

// resultsImportOptions are the flags of results import.
type resultsImportOptions struct {
	importer.Options
	db      string
	replace bool
}

// newResultsImportCmd makes rackless results import.
func newResultsImportCmd(a *app) *cobra.Command {
	o := resultsImportOptions{Options: importer.Options{Version: version}}
	cmd := &cobra.Command{
		Use:   "import [LEVEL=]PATH...",
		Short: "Import other people's results as a study",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef(cmd, "want a file or directory of results")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.resultsImport(cmd.Context(), o, args) },
	}
	dbFlag(cmd, &o.db)
	cli.EnumFlag(cmd, &o.Format, "format", "", "what the results are", importer.Formats()...)
	cmd.Flags().StringVar(&o.Name, "name", "", "`NAME` of the study (default: that of the first PATH)")
	cmd.Flags().StringVar(&o.Factor, "factor", "", "`NAME` of what the levels of logs are levels of (default: variant)")
	cmd.Flags().BoolVar(&o.replace, "replace", false, "replace a study of the same name")
	return cmd
}

// resultsImport reads results and stores them as studies: all of them, or none if one is not understood.
func (a *app) resultsImport(ctx context.Context, o resultsImportOptions, args []string) error {
	sources, closeAll, err := conduct.OpenSources(args)
	if err != nil {
		return cli.Usage(err)
	}
	defer closeAll()
	studies, err := importer.Import(sources, o.Options)
	if err != nil {
		return fmt.Errorf("%w\nnothing was imported", err)
	}
	path, err := a.dbPath(o.db)
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, path)
	if err != nil {
		return err
	}
	// All studies are kept or none: a second import of the same files then finds no half of the first.
	err = errors.Join(conduct.Keep(ctx, db, studies, version, time.Now(), o.replace), db.Close())
	if errors.Is(err, store.ErrTaken) {
		return fmt.Errorf("%w; give the import another --name, or let it take that one's place with "+
			"--replace\nnothing was imported", err)
	}
	if err != nil {
		return err
	}
	for _, s := range studies {
		fmt.Fprint(a.out, s.Text())
	}
	fmt.Fprintf(a.out, "kept in %s; see it with: rackless study report %s\n", path, studies[0].Spec.Name)
	return nil
}
