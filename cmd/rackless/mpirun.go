//go:build linux

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/rack/mpi"
	"github.com/rackless/rackless/vm/guest"
)

func newMPIRunCmd(a *app) *cobra.Command {
	var o mpi.Options
	var names []string
	var hostfile string
	var ranks bool
	transport := string(mpi.Auto)
	cmd := &cobra.Command{
		Use:   "mpirun [LAB] [flags] -- PROGRAM [ARGUMENT]...",
		Short: "Run an MPI program on the nodes of a lab, and prove that it used RDMA",
		Args: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); ranks && n < 0 && len(args) < 2 {
				return nil
			} else if n < 0 || n > 1 || n == len(args) {
				return cli.Usagef(cmd, "want a lab and a program: rackless mpirun LAB -- PROGRAM")
			}
			return nil
		},
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var hosts []byte
			if hostfile != "" {
				if hosts, err = userfile.Read(hostfile, userfile.Text); err != nil {
					return err
				}
			}
			dash := cmd.ArgsLenAtDash()
			if dash < 0 { // the rank file needs none
				dash = len(args)
				args = append(args, "PROGRAM")
			}
			r, err := a.openOne(args[:dash])
			if err != nil {
				return err
			}
			defer r.Close()
			o.Program, o.Stdout, o.Stderr = args[dash:], raw(a.out), raw(a.err)
			o.Transport = mpi.Transport(transport)
			if hostfile == "" {
				o.Nodes, err = mpi.NodesOf(r.State.Lab, names, r.Endpoint)
			} else {
				o.Nodes, err = mpi.NodesOfFile(r.State.Lab, hostfile, hosts, r.Endpoint)
			}
			if err != nil {
				return cli.Usage(err)
			}
			o.Lab = r.State.Lab.Name
			if o.Plan, err = mpi.PlanOf(r); err != nil {
				return err
			}
			if ranks {
				text, err := o.Rankfile()
				fmt.Fprint(a.out, text)
				return err
			}
			if terminal.Of(a.in) == nil {
				if o.Stdin, err = guest.ReadInput(cmd.Context(), a.in); err != nil {
					return err
				}
			}
			res, err := mpi.Run(cmd.Context(), r, o)
			if res != nil {
				fmt.Fprint(a.err, res.Text())
			}
			if errors.Is(err, mpi.ErrFellBack) {
				return fault(err)
			}
			if err != nil {
				return err
			}
			return cli.Exit(res.Exit)
		},
	}
	cmd.Flags().IntVarP(&o.Ranks, "ranks", "n", 0, "ranks of all nodes together (default: one for each CPU)")
	cmd.Flags().IntVar(&o.PerNode, "per-node", 0, "ranks on each node at most (default: its CPUs)")
	cmd.Flags().StringSliceVar(&names, "nodes", nil, "run on these nodes, in this order (default: all)")
	cmd.Flags().StringVar(&hostfile, "hostfile", "", "run on the nodes of this file, one a line: NODE or NODE slots=N")
	cmd.MarkFlagsMutuallyExclusive("nodes", "hostfile")
	cmd.MarkFlagsMutuallyExclusive("per-node", "hostfile")
	cmd.Flags().BoolVar(&ranks, "print-rankfile", false,
		"print the rank file by which Open MPI binds the ranks, with the reasons, and run nothing")
	cmd.Flags().BoolVar(&o.Oversubscribe, "oversubscribe", false, "allow more ranks than CPUs")
	cli.EnumFlag(cmd, &o.Library, "mpi", "", "the MPI that starts the ranks (default: what the first node has)",
		bench.GroupLibraries...)
	cli.EnumFlag(cmd, &transport, "transport", "", "what carries messages", mpi.Transports()...)
	return cmd
}
