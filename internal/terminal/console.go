package terminal

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// escapeKey is Ctrl-], as in telnet and virsh, the only key that is not sent to the node.
const escapeKey = 0x1d

// errEscape ends copyKeys after the escape key, or if the terminal is gone.
var errEscape = errors.New("escape key")

// Connect runs until the escape key, the end of the node or of ctx. It uses raw mode, so that Ctrl-C goes to the node.
func Connect(ctx context.Context, conn net.Conn, t *os.File, out io.Writer) (err error) {
	old, err := term.MakeRaw(int(t.Fd()))
	if err != nil {
		return err
	}
	defer func() {
		// The guest may have left colours or a hidden cursor.
		fmt.Fprint(out, "\x1b[0m\x1b[?25h\r\n")
		err = errors.Join(err, term.Restore(int(t.Fd()), old))
	}()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	// A read of a terminal cannot be interrupted, so the goroutine outlives this function.
	keys, output := make(chan error, 1), make(chan error, 1)
	go func() { keys <- copyKeys(conn, t) }()
	go func() {
		_, err := io.Copy(out, conn)
		err = cmp.Or(err, ErrEnd)
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

// ErrEnd is returned when the node closed the console.
var ErrEnd = errors.New("the console was closed by the node: it has ended or was taken down")

// copyKeys also copies keys before the escape key in the same read.
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
		if escaped || errors.Is(err, io.EOF) { // EOF means that the terminal hung up
			return errEscape
		}
		if err != nil {
			return err
		}
	}
}

// Pipe types its input into the console and copies the output to out. It ends after the input and silence for quiet.
func Pipe(ctx context.Context, conn net.Conn, in io.Reader, out io.Writer, quiet time.Duration) error {
	typed := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, in)
		typed <- err
	}()
	heard := make(chan error, 1)
	spoke := make(chan struct{}, 1)
	go func() {
		_, err := io.Copy(signalWriter{out, spoke}, conn)
		err = cmp.Or(err, ErrEnd)
		heard <- err
	}()
	// A console does not report the end of a command.
	silence := time.NewTimer(quiet)
	defer silence.Stop()
	var timeout <-chan time.Time // nil during input, so that it never fires
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

// signalWriter never blocks: one pending signal is enough.
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

// Confirm asks a yes-or-no question.
func Confirm(ctx context.Context, in io.Reader, out io.Writer, question string) (bool, error) {
	fmt.Fprintf(out, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() {
		// The end of input means no, and so does a line that is too long.
		line, _ := bufio.NewReader(io.LimitReader(in, 1<<10)).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case text := <-answer:
		return text == "y" || text == "yes", nil
	}
}
