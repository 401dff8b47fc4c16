package libvirt

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// prompt is what virsh writes before it reads a command, whatever its language.
const prompt = "virsh # "

// maxOutput bounds what one command may print. libvirt itself ends at 4 MiB for a string
// (REMOTE_STRING_MAX of its protocol).
const maxOutput = 64 << 20

// A session is one virsh that reads its commands from a pipe.
//
// Its output is framed by markers, for which virsh's own echo is asked before and after each
// command. virsh repeats what it reads, if it was built with readline as all distributions do; so
// the marker is sent in two quoted pieces and comes back as one word only where it is printed.
type session struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *os.File
	err    *os.File
	nonce  string // in markers, not to be foreseen by whoever chooses names and XML
	echoes bool   // virsh repeats its input
	ended  chan struct{}
}

// virshEnv is the environment of virsh: messages in English, which is what is compared with, and no
// history, in which the commands of a session would take the place of the user's.
func virshEnv(history bool) []string {
	env := append(os.Environ(), "LC_ALL=C", "LANGUAGE=C", "TERM=dumb", "INPUTRC=/dev/null")
	if !history {
		env = append(env, "XDG_CACHE_HOME=/dev/null") // in which no history can be written
	}
	return env
}

// startSession starts a virsh and waits until it is connected.
func startSession(ctx context.Context, virsh, uri string) (*session, error) {
	var random [8]byte
	rand.Read(random[:]) // never fails, see crypto/rand
	s := &session{cmd: exec.Command(virsh, "--quiet", "--connect", uri), nonce: hex.EncodeToString(random[:]),
		ended: make(chan struct{})}
	s.cmd.Env = virshEnv(false)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for rackless to handle
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	var out, complaint *os.File
	if s.out, out, err = os.Pipe(); err != nil {
		return nil, err
	}
	if s.err, complaint, err = os.Pipe(); err != nil {
		return nil, errors.Join(err, s.out.Close(), out.Close())
	}
	s.cmd.Stdout, s.cmd.Stderr = out, complaint
	err = s.cmd.Start()
	out.Close() // or the pipes would stay open after virsh has gone
	complaint.Close()
	if err != nil {
		return nil, errors.Join(err, s.out.Close(), s.err.Close())
	}
	go func() {
		_ = s.cmd.Wait() // that it has ended is the news; why is on its standard error
		close(s.ended)
	}()
	// The first answer shows whether the input is repeated.
	_, before, err := s.exchange(ctx, "")
	if err != nil {
		s.kill()
		return nil, err
	}
	s.echoes = strings.Contains(string(before), "echo")
	return s, nil
}

// end ends virsh with what it has started, an ssh say. What they have written can still be read.
func (s *session) end() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) } // an error means that all have ended

// abort ends virsh and whatever waits for its pipes.
func (s *session) abort() {
	s.end()
	s.out.Close()
	s.err.Close()
}

// kill ends virsh without a word, so that it does nothing at its exit, and waits for it.
func (s *session) kill() {
	s.abort()
	<-s.ended
	s.in.Close()
}

// marker returns how a marker is asked for and what it is when it is printed.
func (s *session) marker(letter string) (request, printed string) {
	return `"` + letter + `"` + s.nonce, letter + s.nonce
}

// run executes one command, whose words are quoted already. A command that virsh refuses is a
// *virshError; after any other error the session is of no use, and whether the command was carried
// out is not known.
func (s *session) run(ctx context.Context, line string) ([]byte, error) {
	raw, complaint, err := s.exchange(ctx, line)
	if err != nil {
		return nil, err
	}
	out, err := s.cut(raw)
	if err != nil {
		return nil, err
	}
	if text := errorText(complaint); text != "" {
		return nil, &virshError{text}
	}
	return out, nil
}

// exchange sends a line between markers. It returns what came on standard output from the first
// marker to the second, and on standard error. With no line it returns instead what came before the
// first marker.
func (s *session) exchange(ctx context.Context, line string) (raw, complaint []byte, err error) {
	// readline edits what it reads: control characters are commands to it (a tab completes), and so
	// are bytes beyond ASCII in the C locale.
	if i := strings.IndexFunc(line, func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
		return nil, nil, &virshError{fmt.Sprintf("%.80q cannot be sent to virsh: want printable ASCII", line[i:])}
	}
	begin, begun := s.marker("B")
	end, ended := s.marker("E")
	input := "echo " + begin + "\n" + line + "\necho " + end + "\necho --err " + end + "\n"
	stop := context.AfterFunc(ctx, s.abort)
	defer stop()

	// virsh repeats its input while it reads, so that writing and reading go on at the same time.
	var wg sync.WaitGroup
	var writeErr, errErr error
	wg.Go(func() { _, writeErr = io.WriteString(s.in, input) })
	wg.Go(func() { complaint, errErr = readTo(s.err, "error: "+ended+"\n") })
	raw, err = readTo(s.out, ended)
	if err != nil {
		s.end() // or the others would wait for ever
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	if err = errors.Join(err, errErr, writeErr); err != nil {
		return nil, complaint, s.died(complaint)
	}
	before, after, ok := bytes.Cut(raw, []byte(begun))
	if !ok {
		return nil, nil, fmt.Errorf("virsh printed %.80q, without the marker that was asked for", raw)
	}
	if line == "" {
		return after, before, nil
	}
	return after, complaint, nil
}

// died returns the error for a virsh that has ended in the middle of a conversation.
func (s *session) died(complaint []byte) error {
	<-s.ended
	if text := errorText(complaint); text != "" {
		return errors.New(text)
	}
	return fmt.Errorf("virsh ended (%v) before it answered: whether the command was carried out is not known",
		s.cmd.ProcessState)
}

// cut takes the command's own output out of what was printed between the markers:
//
//	virsh # COMMAND     as far as readline shows it, up to a line's end; nothing without readline
//	OUTPUT
//	virsh # echo "E"NONCE
//
// and, before the end marker that is cut off already, "virsh # " alone without readline.
func (s *session) cut(raw []byte) ([]byte, error) {
	last := bytes.LastIndex(raw, []byte(prompt))
	if last < 0 {
		return nil, fmt.Errorf("virsh printed %.80q, without its prompt", raw)
	}
	out := raw[:last]
	if s.echoes {
		_, after, ok := bytes.Cut(out, []byte("\n"))
		if !ok {
			return nil, fmt.Errorf("virsh printed %.80q, without the command that it was given", raw)
		}
		return after, nil
	}
	return bytes.TrimPrefix(out, []byte(prompt)), nil
}

// readTo reads up to the marker, which must come before maxOutput bytes, and returns what was
// before it. What comes after it in the same piece is passed over: only prompts and repeated input
// do.
func readTo(r io.Reader, marker string) ([]byte, error) {
	var b []byte
	piece := make([]byte, 64<<10)
	for {
		n, err := r.Read(piece)
		from := max(0, len(b)-len(marker)) // a marker may come in two pieces
		b = append(b, piece[:n]...)
		if i := bytes.Index(b[from:], []byte(marker)); i >= 0 {
			return b[:from+i], nil
		}
		if err != nil {
			return b, err
		}
		if len(b) > maxOutput {
			return b, fmt.Errorf("more than %d MiB", maxOutput>>20)
		}
	}
}

// A virshError is what virsh said of a command that it did not carry out.
type virshError struct{ text string }

func (e *virshError) Error() string { return e.text }

// errorText returns what is said after "error: " at the beginning of lines, with the lines that
// follow, in one line; "" where there is no error. virsh first says what it could not do, then
// libvirt's reason. That the daemon was restarted is news and no error: virsh connects again by
// itself before the next command.
func errorText(stderr []byte) string {
	var parts []string
	for line := range strings.Lines(string(stderr)) {
		text, ok := strings.CutPrefix(strings.TrimSpace(line), "error:")
		text = strings.TrimSpace(text)
		if strings.HasPrefix(text, "Disconnected from ") || text == "Reconnected to the hypervisor" || text == "" ||
			!ok && len(parts) == 0 {
			continue
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ": ")
}

// quote makes one word of virsh's command line of a text: in single quotes nothing but a single quote means anything.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// commandLine quotes the words of a command.
func commandLine(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	return strings.Join(quoted, " ")
}
