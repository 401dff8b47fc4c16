package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rackless/rackless/rack"
)

// escapeKey leaves the console: Ctrl-], as with telnet and virsh. It is the only key that the node never gets.
const escapeKey = 0x1d

func newConsoleCmd(a *app) *cobra.Command {
	quiet := time.Second
	cmd := &cobra.Command{
		Use:   "console NODE",
		Short: "Open the serial console of a node: a root shell",
		Long: `Connects this terminal with the serial console of a node, given as NODE or LAB/NODE. A shell waits there; Enter shows its
prompt. Every key goes to the node, Ctrl-C too; Ctrl-] leaves. One console can be open at a time.

If standard input is no terminal, it is typed into the console, and the command ends once the console has been silent for a
while after the end of the input. To run commands and get their output and status, rackless exec is better.`,
		Example: `  rackless console vm00
  echo uname -a | rackless console vm00`,
		Args:              exactArgs(1, "a node"),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.dirs()
			if err != nil {
				return err
			}
			r, node, err := rack.OpenNode(d, args[0])
			if err != nil {
				return err
			}
			defer r.Close()
			conn, err := r.Console(cmd.Context(), node)
			if err != nil {
				return err
			}
			defer conn.Close()
			if t := terminal(a.in); t != nil {
				fmt.Fprintf(a.err, "console of %s in lab %s: Enter shows the prompt, Ctrl-] leaves\n", node, r.Lab.Name)
				return a.consoleTerminal(cmd.Context(), conn, t)
			}
			return consolePipe(cmd.Context(), conn, a.in, a.out, quiet)
		},
	}
	cmd.Flags().DurationVar(&quiet, "quiet", quiet, "without a terminal: end after this much silence")
	return cmd
}

// errEscape ends the copying of keys.
var errEscape = errors.New("escape key")

// consoleTerminal passes keys and output through until the escape key, the end of the node or ctx.
// The terminal is as it was afterwards.
func (a *app) consoleTerminal(ctx context.Context, conn net.Conn, t *os.File) (err error) {
	old, err := term.MakeRaw(int(t.Fd()))
	if err != nil {
		return err
	}
	defer func() {
		// The guest may have left colours or a hidden cursor behind; the line ends so that the
		// shell's prompt stands alone.
		fmt.Fprint(a.out, "\x1b[0m\x1b[?25h\r\n")
		err = errors.Join(err, term.Restore(int(t.Fd()), old))
	}()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	// The reader of keys blocks in its read and outlives this function; the program ends soon after.
	keys, output := make(chan error, 1), make(chan error, 1)
	go func() { keys <- copyKeys(conn, t) }()
	go func() {
		_, err := io.Copy(a.out, conn)
		if err == nil {
			err = errConsoleEnd
		}
		output <- err
	}()
	select {
	case err = <-output:
	case err = <-keys:
		conn.Close()
		<-output // nothing may be printed after the terminal has been restored
	}
	switch {
	case errors.Is(err, errEscape):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// errConsoleEnd is the end of a console from the node's side.
var errConsoleEnd = errors.New("the console was closed by the node: it has ended or was taken down")

// copyKeys passes what is typed on until the escape key.
func copyKeys(w io.Writer, r io.Reader) error {
	buf := make([]byte, 1024)
	for {
		n, err := r.Read(buf)
		keys, _, escaped := bytes.Cut(buf[:n], []byte{escapeKey})
		if len(keys) > 0 {
			if _, err := w.Write(keys); err != nil {
				return err
			}
		}
		if escaped || errors.Is(err, io.EOF) { // the end of a terminal is its hang-up
			return errEscape
		}
		if err != nil {
			return err
		}
	}
}

// consolePipe types what is read from in and copies what the console says to out, until the console
// has been silent for the time quiet after the end of the input.
func consolePipe(ctx context.Context, conn net.Conn, in io.Reader, out io.Writer, quiet time.Duration) error {
	typed := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, in)
		typed <- err
	}()
	heard := make(chan error, 1)
	spoke := make(chan struct{}, 1)
	go func() {
		_, err := io.Copy(signalWriter{out, spoke}, conn)
		if err == nil {
			err = errConsoleEnd
		}
		heard <- err
	}()
	silence := time.NewTimer(quiet)
	defer silence.Stop()
	var timeout <-chan time.Time // nil, and so never, while there is input
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-heard:
			return err
		case err := <-typed:
			if err != nil {
				return fmt.Errorf("type into the console: %w", err)
			}
			timeout = silence.C
			silence.Reset(quiet)
		case <-spoke:
			silence.Reset(quiet)
		case <-timeout:
			return nil
		}
	}
}

// signalWriter tells a channel after each write.
type signalWriter struct {
	io.Writer
	wrote chan<- struct{}
}

func (s signalWriter) Write(b []byte) (int, error) {
	n, err := s.Writer.Write(b)
	select {
	case s.wrote <- struct{}{}:
	default:
	}
	return n, err
}
