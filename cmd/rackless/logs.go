package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/rack"
)

// logsFlags are the options of logs.
type logsFlags struct {
	follow, qemu, daemon bool
	lines                int // 0: all
}

func newLogsCmd(a *app) *cobra.Command {
	var f logsFlags
	cmd := &cobra.Command{
		Use:   "logs NODE | logs --daemon LAB",
		Short: "Print what a node's console, its QEMU or the lab's switch have said",
		Long: `Prints what a node, given as NODE or LAB/NODE, has written to its serial console since it was started, whether a console was open or
not. A node that was cloned did not boot: what the kernel said at boot is in the node's own memory (rackless exec NODE -- dmesg).

On a terminal, control sequences are taken out of the log; otherwise it comes as it is.`,
		Example: `  rackless logs vm00 -f
  rackless logs vm00 --qemu
  rackless logs pair --daemon`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return usagef(cmd, "want a node, or with --daemon a lab; have %s", count(len(args), "argument"))
			case f.qemu && f.daemon:
				return usagef(cmd, "--qemu and --daemon are two logs: say one of them")
			case f.lines < 0:
				return usagef(cmd, "--lines %d: want 0 (all) or more", f.lines)
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if f.daemon {
				return a.completeLabs(cmd, args, word)
			}
			return a.completeNodes(cmd, args, word)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := a.logPath(args[0], f)
			if err != nil {
				return err
			}
			var w io.Writer = a.out
			if terminal(a.out) != nil {
				w = &plainWriter{w: a.out}
			}
			return printLog(cmd.Context(), w, path, f)
		},
	}
	fs := cmd.Flags()
	fs.BoolVarP(&f.follow, "follow", "f", false, "go on as the log grows, until Ctrl-C or the end of the lab")
	fs.IntVarP(&f.lines, "lines", "n", 0, "only this many lines from the end (0: all)")
	fs.BoolVar(&f.qemu, "qemu", false, "what QEMU itself said, instead of the node's console")
	fs.BoolVar(&f.daemon, "daemon", false, "what the switch and agent daemon of a lab said")
	return cmd
}

// logPath finds the file, and tells on standard error why it is empty where that surprises.
func (a *app) logPath(arg string, f logsFlags) (string, error) {
	d, err := a.dirs()
	if err != nil {
		return "", err
	}
	if f.daemon {
		name, err := labName(arg)
		if err != nil {
			return "", err
		}
		r, err := rack.Open(d, name)
		if err != nil {
			return "", err
		}
		return r.DaemonLog(), nil
	}
	r, node, err := rack.OpenNode(d, arg)
	if err != nil {
		return "", err
	}
	logs := r.Logs(node)
	if f.qemu {
		return logs.QEMU, nil
	}
	n, ok := r.State.Node(node)
	if fi, err := os.Stat(logs.Console); ok && n.Cloned && err == nil && fi.Size() == 0 {
		fmt.Fprintf(a.err, "%s was cloned and has printed nothing since; its kernel's messages: rackless exec "+
			"%s/%s -- dmesg\n", node, r.Lab.Name, node)
	}
	return logs.Console, nil
}

// followPause is between two looks at whether a log has grown.
const followPause = 200 * time.Millisecond

// printLog copies a log and, if asked, what is added to it, until ctx ends or the file is gone.
func printLog(ctx context.Context, w io.Writer, path string, f logsFlags) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if f.lines > 0 {
		if err := seekLines(file, f.lines); err != nil {
			return err
		}
	}
	for {
		if _, err := io.Copy(w, file); err != nil {
			return err
		}
		if !f.follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil // how following ends
		case <-time.After(followPause):
		}
		now, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			_, err := io.Copy(w, file) // what came last before the lab went down
			return err
		}
		if err != nil {
			return err
		}
		if have, err := file.Stat(); err != nil {
			return err
		} else if !os.SameFile(have, now) { // the node was made anew
			file.Close()
			if file, err = os.Open(path); err != nil {
				return err
			}
		}
	}
}

// seekLines moves to the n-th line from the end.
func seekLines(f *os.File, n int) error {
	at, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	buf := make([]byte, 4096)
	last := true // the newline that ends the file ends a line and begins none
	for at > 0 {
		chunk := min(at, int64(len(buf)))
		at -= chunk
		if _, err := f.ReadAt(buf[:chunk], at); err != nil {
			return err
		}
		for i := chunk - 1; i >= 0; i-- {
			if buf[i] == '\n' && !last {
				if n--; n == 0 {
					_, err := f.Seek(at+i+1, io.SeekStart)
					return err
				}
			}
			last = false
		}
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}

// A plainWriter passes text and leaves out control characters and escape sequences: a log is
// written by the guest, and what it says must not control, or make the terminal answer into, the
// shell of whoever reads it.
type plainWriter struct {
	w     io.Writer
	state int // of the sequence that a write may end within
}

// States of a plainWriter.
const (
	inText = iota
	inEscape
	inCSI    // ESC [ ... up to a letter (ECMA-48, section 5.4)
	inString // ESC ] and the like ... up to BEL or ESC
)

func (p *plainWriter) Write(b []byte) (int, error) {
	var out bytes.Buffer
	for _, c := range b {
		switch p.state {
		case inEscape:
			switch {
			case c == '[':
				p.state = inCSI
			case strings.IndexByte("]PX^_", c) >= 0:
				p.state = inString
			case c >= 0x20 && c <= 0x2f: // an intermediate byte: one more comes
			default:
				p.state = inText
			}
		case inCSI:
			if c >= 0x40 && c <= 0x7e {
				p.state = inText
			}
		case inString:
			switch c {
			case 0x07:
				p.state = inText
			case 0x1b:
				p.state = inEscape
			}
		default:
			switch {
			case c == 0x1b:
				p.state = inEscape
			case c == '\n' || c == '\t' || c >= 0x20 && c != 0x7f:
				out.WriteByte(c)
			}
		}
	}
	if _, err := p.w.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(b), nil
}
