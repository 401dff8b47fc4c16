package terminal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/term"
)

// escapeKey leaves the console: Ctrl-], as with telnet and virsh. It is the only key that the node never gets.
const escapeKey = 0x1d

// errEscape ends the copying of keys.
var errEscape = errors.New("escape key")

// Connect passes keys and output through until the escape key, the end of the node or ctx.
// The terminal is as it was afterwards.
func Connect(ctx context.Context, conn net.Conn, t *os.File, out io.Writer) (err error) {
	old, err := term.MakeRaw(int(t.Fd()))
	if err != nil {
		return err
	}
	defer func() {
		// The guest may have left colours or a hidden cursor behind; the line ends so that the
		// shell's prompt stands alone.
		fmt.Fprint(out, "\x1b[0m\x1b[?25h\r\n")
		err = errors.Join(err, term.Restore(int(t.Fd()), old))
	}()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	// The reader of keys blocks in its read and outlives this function; the program ends soon after.
	keys, output := make(chan error, 1), make(chan error, 1)
	go func() { keys <- copyKeys(conn, t) }()
	go func() {
		_, err := io.Copy(out, conn)
		if err == nil {
			err = ErrEnd
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

// ErrEnd is the end of a console from the node's side.
var ErrEnd = errors.New("the console was closed by the node: it has ended or was taken down")

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

// Pipe types what is read from in and copies what the console says to out, until the console
// has been silent for the time quiet after the end of the input.
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
		if err == nil {
			err = ErrEnd
		}
		heard <- err
	}()
	// The console never says that a command is done: silence is the only sign of it.
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
