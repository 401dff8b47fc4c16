//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm/guest"
)

const (
	perftestPort = 18515            // of servers without -p
	serverStarts = 30 * time.Second // until a server listens
	serverPoll   = 50 * time.Millisecond
	serverEnds   = 5 * time.Second // until a server ends after its client
)

// newPerftestCmd replaces two terminals.
func newPerftestCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "perftest CLIENT SERVER [PROGRAM] [-- FLAG...]",
		Short: "Run a program of perftest between two nodes, and print both commands",
		Args: func(cmd *cobra.Command, args []string) error {
			names, _ := beforeDash(cmd, args)
			if len(names) < 2 || len(names) > 3 {
				return cli.Usagef(cmd, "want two nodes, a program of perftest if you like, and its flags after --")
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			switch len(args) {
			case 0, 1:
				names, _ := a.completeNodes(cmd, nil, word)
				return names, cobra.ShellCompDirectiveNoFileComp
			case 2:
				return perftestPrograms(), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			names, flags := beforeDash(cmd, args)
			program := "ib_write_bw"
			if len(names) == 3 {
				program = names[2]
			}
			if all := perftestPrograms(); !slices.Contains(all, program) {
				hint := "want " + words.Or(all)
				if near := strictyaml.Nearest(program, all); near != "" {
					hint = "did you mean " + near + "?"
				}
				return cli.Usagef(cmd, "%s is no program of perftest; %s", program, hint)
			}
			return a.perftest(cmd.Context(), names[0], names[1], program, flags)
		},
	}
}

// beforeDash splits arguments at "--".
func beforeDash(cmd *cobra.Command, args []string) (before, after []string) {
	if at := cmd.ArgsLenAtDash(); at >= 0 {
		return args[:at], args[at:]
	}
	return args, nil
}

func perftestPrograms() []string {
	of := slices.DeleteFunc(tool.Catalogue(), func(e bench.Engine) bool { return e.Tool != tool.Perftest })
	return lists.Map(of, func(e bench.Engine) string { return e.Program })
}

// perftest's status is the client's.
func (a *app) perftest(ctx context.Context, clientArg, serverArg, program string, flags []string) error {
	r, client, err := a.openNode(clientArg)
	if err != nil {
		return err
	}
	defer r.Close()
	other, server, err := a.openNode(serverArg)
	if err != nil {
		return err
	}
	defer other.Close()
	if r.Lab.Name != other.Lab.Name || client == server {
		return cli.Usage(fmt.Errorf("%s and %s: want two nodes of one lab", clientArg, serverArg))
	}
	port, waits, err := serverPort(flags)
	if err != nil {
		return cli.Usage(err)
	}
	from, err := r.Endpoint(client)
	if err != nil {
		return err
	}
	to, err := r.Endpoint(server)
	if err != nil {
		return err
	}
	serve, ask := perftestCommands(program, flags, from, to)
	fmt.Fprintf(a.err, "rackless exec %s -- %s\nrackless exec %s -- %s\n", serverArg, words.CommandLine(serve),
		clientArg, words.CommandLine(ask))
	if !waits {
		return errors.New("a server with -R listens on no TCP port to wait for: type the two commands in two terminals")
	}
	if taken, err := bench.Listening(ctx, r, server, port); err != nil || taken {
		if err == nil {
			err = fmt.Errorf("something on %s listens on port %d already, as a server without a client does; "+
				"-p %d takes another port", server, port, port+1)
		}
		return err
	}
	serverCtx, kill := context.WithCancel(ctx)
	over := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		out, err := r.Serve(serverCtx, server, serve, over)
		if err == nil && out.ExitCode != 0 {
			err = bench.NewExitError(server, program, out)
		}
		ended <- err
		close(ended)
	}()
	// The server's port has to be free afterwards.
	defer func() {
		kill()
		for range ended {
		}
	}()
	if err := awaitServer(ctx, r, server, port, ended); err != nil {
		return err
	}
	exit, err := r.Stream(ctx, client, guest.Command{Argv: ask}, raw(a.out), raw(a.err))
	close(over)
	if err != nil {
		return err
	}
	select {
	case err := <-ended:
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(a.err, "rackless: the server: %v\n", err)
		}
	case <-time.After(serverEnds):
	}
	return cli.Exit(exit)
}

// perftestCommands puts flags of the user last, so that they count.
func perftestCommands(program string, flags []string, client, server bench.Endpoint) (serve, ask []string) {
	of := func(ep bench.Endpoint) []string {
		argv := []string{program, "-d", ep.Device, "-x", strconv.Itoa(ep.GIDIndex)}
		return append(argv, flags...)
	}
	return of(server), append(of(client), server.Addr.String())
}

// serverPort's waits is false with the connection manager of RDMA.
func serverPort(flags []string) (port int, waits bool, err error) {
	port, waits = perftestPort, true
	for i, f := range flags {
		text, given := strings.CutPrefix(f, "--port=")
		switch {
		case given:
		case (f == "-p" || f == "--port") && i+1 < len(flags):
			text = flags[i+1]
		case strings.HasPrefix(f, "-p") && f != "-p":
			text = f[2:]
		case f == "-R" || f == "--rdma_cm" || f == "-z" || f == "--com_rdma_cm":
			waits = false
			continue
		default:
			continue
		}
		if port, err = strconv.Atoi(text); err != nil || port < 1 || port > 65535 {
			return 0, false, fmt.Errorf("%s: %q is not a port", f, text)
		}
	}
	return port, waits, nil
}

func awaitServer(ctx context.Context, r *rack.Rack, node string, port int, ended <-chan error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, serverStarts, fmt.Errorf("the server on %s does not listen on port "+
		"%d after %v", node, port, serverStarts))
	defer cancel()
	for {
		ready, err := bench.Listening(ctx, r, node, port)
		if err != nil || ready {
			return err
		}
		select {
		case err := <-ended:
			if err == nil {
				err = fmt.Errorf("it printed no error; rackless exec %s runs it by itself", node)
			}
			return fmt.Errorf("the server ended before it listened: %w", err)
		default:
		}
		if err := wait.For(ctx, serverPoll); err != nil {
			return err
		}
	}
}
