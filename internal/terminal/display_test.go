package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/rackless/rackless/internal/steps"
)

func operation(u *Display) {
	u.Event(steps.Event{Step: "image"})
	u.Event(steps.Event{Step: "image", Note: "download 3 packages"})
	u.Event(steps.Event{Step: "image", End: true, Took: 1500 * time.Millisecond})
	u.Event(steps.Event{Step: "nodes"})
	u.Event(steps.Event{Step: "nodes", Done: 0, Total: 2})
	u.Event(steps.Event{Step: "nodes", Done: 1, Total: 2})
	u.Event(steps.Event{Step: "nodes", End: true, Err: errors.New("no"), Took: 20 * time.Millisecond})
}

func TestPipedProgressIsPlainLines(t *testing.T) {
	var b bytes.Buffer
	u := NewDisplay(&b, func(string) string { return "" })
	operation(u)
	u.Close()
	u.Close()    // a second call does nothing
	operation(u) // would follow the result
	const want = "   download 3 packages\nok image 1.50 s\nfailed nodes 1/2 0.02 s\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", &b, want)
	}
}

func TestLiveProgressIsOneLineThatIsTakenBack(t *testing.T) {
	var b bytes.Buffer
	now := time.Unix(0, 0)
	u := &Display{w: &b, live: true, width: func() int { return 20 }, now: func() time.Time { return now }}
	u.Event(steps.Event{Step: "nodes"})
	now = now.Add(2 * time.Second)
	u.Event(steps.Event{Step: "nodes", Done: 3, Total: 16})
	u.Event(steps.Event{Step: "nodes", Note: "hello"})
	u.Event(steps.Event{Step: "nodes", End: true, Took: 2 * time.Second})
	want := strings.Join([]string{
		ClearLine + "| nodes 0.00 s",
		ClearLine + "| nodes 3/16 2.00 s", // 19 columns fit, and the last one stays free
		ClearLine + "   hello\n",
		ClearLine + "| nodes 3/16 2.00 s",
		ClearLine + "ok nodes 3/16 2.00 s\n",
	}, "")
	if b.String() != want {
		t.Errorf("got  %q\nwant %q", &b, want)
	}
	b.Reset()
	u.Event(steps.Event{Step: "a step with a long name"})
	if got, want := b.String(), ClearLine+"| a step wi~ 0.00 s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	b.Reset()
	u.Close()
	if got := b.String(); got != ClearLine {
		t.Errorf("close printed %q, want %q", got, ClearLine)
	}
}

func TestColoursAreForTerminalsThatWantThem(t *testing.T) {
	var b bytes.Buffer
	u := &Display{w: &b, color: true, now: time.Now}
	u.Event(steps.Event{Step: "x", End: true})
	if !strings.Contains(b.String(), "\x1b[32mok\x1b[0m x") {
		t.Errorf("got %q", &b)
	}
}

// openPTY has 40 columns and 10 lines (see pts(4)).
func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: 40}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

func screenOf(master, slave *os.File) func() string {
	got := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(master) // ends with EIO after the slave is closed
		got <- string(b)
	}()
	return func() string {
		slave.Close()
		return <-got
	}
}

func TestProgressOnATerminal(t *testing.T) {
	master, slave := openPTY(t)
	screen := screenOf(master, slave)
	u := NewDisplay(slave, func(string) string { return "" })
	if !u.live || !u.color || u.width() != 40 {
		t.Errorf("live %v, color %v, width %d", u.live, u.color, u.width())
	}
	operation(u)
	u.Close()
	if got := screen(); !strings.Contains(got, "\x1b[32mok\x1b[0m image 1.50 s") || !strings.HasSuffix(got, "\n") {
		t.Errorf("got %q", got)
	}
}

func TestTerminalsThatWantNoDecoration(t *testing.T) {
	_, slave := openPTY(t)
	u := NewDisplay(slave, func(k string) string { return map[string]string{"NO_COLOR": "1"}[k] })
	if !u.live || u.color {
		t.Errorf("with NO_COLOR: live %v, color %v", u.live, u.color)
	}
	u.Close()
	if u := NewDisplay(slave, func(k string) string { return map[string]string{"TERM": "dumb"}[k] }); u.live {
		t.Error("with TERM=dumb: live")
	}
}

// waitRaw is needed, because before raw mode Ctrl-C would discard the typed text.
func waitRaw(t *testing.T, tty *os.File) {
	t.Helper()
	for range 1000 {
		m, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		if m.Lflag&(unix.ICANON|unix.ISIG) == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the terminal did not get into raw mode")
}

func TestTheTerminalIsAsItWasAfterAConsole(t *testing.T) {
	for _, how := range []string{"escape key", "end of the node"} {
		t.Run(how, func(t *testing.T) {
			master, slave := openPTY(t)
			before, err := term.GetState(int(slave.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			guest, conn := connPair(t)
			var out bytes.Buffer
			done := make(chan error, 1)
			go func() { done <- Connect(t.Context(), conn, slave, &out) }()
			waitRaw(t, slave)
			io.WriteString(master, "ls\x03")
			buf := make([]byte, 3)
			if _, err := io.ReadFull(guest, buf); err != nil || string(buf) != "ls\x03" {
				t.Errorf("the guest got %q, %v", buf, err)
			}
			if how == "escape key" {
				io.WriteString(master, "\x1dnever typed")
				if err := <-done; err != nil {
					t.Error(err)
				}
			} else {
				io.WriteString(guest, "bye")
				guest.Close()
				if err := <-done; !errors.Is(err, ErrEnd) {
					t.Errorf("got %v, want %v", err, ErrEnd)
				}
				if !strings.HasPrefix(out.String(), "bye") {
					t.Errorf("printed %q", &out)
				}
			}
			after, err := term.GetState(int(slave.Fd()))
			if err != nil || *after != *before {
				t.Errorf("the terminal's state differs: %v", err)
			}
		})
	}
}

func TestALineIsCutToTheWidth(t *testing.T) {
	tests := []struct{ name, got, want string }{
		{"a line that fits", Cut("abc", 3), "abc"},
		{"one that does not", Cut("abcd", 3), "ab~"},
		{"no room", Cut("abcd", 0), "~"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, tt.got, tt.want)
		}
	}
}

func TestAMeterIsShownOnTerminalsAlone(t *testing.T) {
	var b bytes.Buffer
	none := func(string) string { return "" }
	NewMeter(&b, none, func() string { return "5 frames" }).Close()
	if b.Len() > 0 {
		t.Errorf("what is no terminal got %q", &b)
	}
	master, slave := openPTY(t)
	screen := screenOf(master, slave)
	asked := make(chan struct{}, 100)
	m := NewMeter(slave, none, func() string { asked <- struct{}{}; return "5 frames" })
	<-asked
	m.Close()
	if got := screen(); !strings.Contains(got, ClearLine+"5 frames") || !strings.HasSuffix(got, ClearLine) {
		t.Errorf("got %q", got)
	}
}

// A narrow terminal cuts the text before the times.
func TestALiveLineSaysWhatIsDoneAndWhatIsLeft(t *testing.T) {
	var b bytes.Buffer
	now := time.Unix(0, 0)
	u := &Display{w: &b, live: true, width: func() int { return 60 }, now: func() time.Time { return now }}
	u.Remember(filepath.Join(t.TempDir(), "none", "times.json"))
	last := func() string { return b.String()[strings.LastIndex(b.String(), ClearLine)+len(ClearLine):] }
	u.Event(steps.Event{Step: "boot"})
	u.Event(steps.Event{Step: "boot", Live: func() string { return "\x1b[32m[  OK  ]\x1b[0m Started \x07udev" }})
	now = now.Add(40 * time.Second)
	u.Event(steps.Event{Step: "boot", Done: 1, Total: 2})
	if want := "| boot 1/2: [  OK  ] Started udev 40.00 s"; last() != want {
		t.Errorf("got %q, want %q", last(), want)
	}
	u.Event(steps.Event{Live: func() string { return strings.Repeat("x", 80) },
		Left: func() time.Duration { return 150 * time.Second }})
	if want := "| boot 1/2: xxxxxxxxxxxxxxxxxxxx~ 40.00 s, about 2 min left"; last() != want {
		t.Errorf("got %q (%d columns), want %q", last(), len(last()), want)
	}
	u.Event(steps.Event{Step: "boot", End: true})
	if !strings.HasSuffix(b.String(), "ok boot 1/2 0.00 s\n") {
		t.Errorf("got %q", &b)
	}
}

func TestWhatAStepTookIsRemembered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "times.json")
	now := time.Unix(0, 0)
	show := func(took time.Duration, err error) string {
		var b bytes.Buffer
		u := &Display{w: &b, live: true, width: func() int { return 80 }, now: func() time.Time { return now }}
		u.Remember(path)
		u.Event(steps.Event{Step: "boot"})
		u.Event(steps.Event{Step: "boot", End: true, Took: took, Err: err})
		first, _, _ := strings.Cut(strings.TrimPrefix(b.String(), ClearLine), ClearLine)
		return first
	}
	for _, tt := range []struct {
		took time.Duration
		err  error
		want string // prefix of the remaining time
	}{
		{40 * time.Second, nil, "| boot 0.00 s"},
		{10 * time.Minute, errors.New("it failed"), "| boot 0.00 s, about 40 s left"},
		{time.Second, nil, "| boot 0.00 s, about 40 s left"}, // it was cached
		{4 * time.Minute, nil, "| boot 0.00 s, about 40 s left"},
		{0, nil, "| boot 0.00 s, about 4 min left"},
	} {
		if got := show(tt.took, tt.err); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := show(0, nil); got != "| boot 0.00 s" {
		t.Errorf("from a damaged file: %q", got)
	}
}
