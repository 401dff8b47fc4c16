package terminal

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// A Screen is a whole terminal for a live view. It uses the alternate screen, so that Close restores the earlier
// content.
type Screen struct {
	// Keys receives each key. It is nil if the input is not a terminal.
	Keys <-chan byte

	in, out *os.File
	old     *term.State
}

// CtrlC is the key that a terminal in raw mode sends instead of a signal.
const CtrlC = 0x03

// OpenScreen takes over the terminal out, and in if that is a terminal too. Its keys are then not echoed, and Ctrl-C
// is a key.
func OpenScreen(in any, out *os.File) (*Screen, error) {
	s := &Screen{out: out}
	if f := Of(in); f != nil {
		old, err := term.MakeRaw(int(f.Fd()))
		if err != nil {
			return nil, err
		}
		keys := make(chan byte)
		s.in, s.old, s.Keys = f, old, keys
		// A read of a terminal cannot be interrupted, so the goroutine outlives the screen. The program ends soon
		// after.
		go func() {
			b := make([]byte, 1)
			for {
				if _, err := f.Read(b); err != nil {
					return
				}
				keys <- b[0]
			}
		}()
	}
	_, err := fmt.Fprint(out, "\x1b[?1049h\x1b[?25l")
	return s, err
}

// Size returns the current size.
func (s *Screen) Size() (width, height int) { return Size(s.out) }

// Draw shows lines from the top, in place of those before.
func (s *Screen) Draw(lines []string) error {
	// Raw mode of the input also takes the carriage return from the output.
	_, err := fmt.Fprint(s.out, "\x1b[H"+strings.Join(lines, "\x1b[K\r\n")+"\x1b[K\x1b[J")
	return err
}

// Close gives the terminal back.
func (s *Screen) Close() error {
	_, err := fmt.Fprint(s.out, "\x1b[?25h\x1b[?1049l")
	if s.in != nil {
		err = errors.Join(err, term.Restore(int(s.in.Fd()), s.old))
	}
	return err
}
