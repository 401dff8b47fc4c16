package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/steps"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/internal/words"
)

// A Display shows the progress of a long operation. On a terminal the current step is one live line; other outputs get
// plain lines, one for each finished step and each note.
type Display struct {
	w     io.Writer
	live  bool
	color bool
	width func() int // called for each line, since windows change
	now   func() time.Time

	mu    sync.Mutex
	step  string
	count string
	look  func() string
	seen  string
	left  func() time.Duration
	began time.Time
	frame int
	drawn bool
	ended bool // nothing is shown any more, because the command prints its result
	past  past

	stop chan struct{} // closed by Close; nil without a spinner
	done chan struct{}
}

// NewDisplay must be followed by Close before other output to w. env is os.Getenv.
func NewDisplay(w io.Writer, env func(string) string) *Display {
	u := &Display{w: w, now: time.Now}
	if f := Of(w); f != nil && env("TERM") != "dumb" {
		u.w = f // bypasses the Writer, which would escape the codes of the live line
		u.goLive(f, env("NO_COLOR") == "")
	}
	return u
}

func (u *Display) goLive(f *os.File, color bool) {
	u.live, u.color = true, color
	u.width = func() int { w, _ := Size(f); return w }
	u.stop, u.done = make(chan struct{}), make(chan struct{})
	go u.spin()
}

// begin ends the last step if step is "". The caller holds mu.
func (u *Display) begin(step string) {
	u.step, u.count, u.look, u.left, u.seen, u.began = step, "", nil, nil, "", u.now()
}

func (u *Display) spin() {
	defer close(u.done)
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			u.mu.Lock()
			u.frame++
			u.draw()
			u.mu.Unlock()
		case <-u.stop:
			return
		}
	}
}

// ClearLine erases the line. Every terminal knows these control sequences (ECMA-48).
const ClearLine = "\r\x1b[K"

// lookEvery frames make a second: look may read a file.
const lookEvery = 10

// draw uses one line, since ClearLine cannot erase a line that wraps. It cuts the text before the times.
func (u *Display) draw() {
	if !u.live || u.step == "" {
		return
	}
	const frames = `|/-\`
	if u.look != nil && (u.seen == "" || u.frame%lookEvery == 0) {
		if u.seen = words.Printable(Plain(u.look())); u.seen != "" {
			u.seen = ": " + u.seen
		}
	}
	took := u.now().Sub(u.began)
	left := u.past.left(u.step, took)
	if u.left != nil {
		left = u.left()
	}
	end := " " + words.Seconds(took)
	if left > 0 { // not if unknown or underestimated
		end += ", " + words.About(left) + " left"
	}
	line := fmt.Sprintf("%c %s%s%s", frames[u.frame%len(frames)], u.step, u.count, u.seen)
	room := u.width() - 1 // some terminals wrap after the last column
	fmt.Fprint(u.w, ClearLine+Cut(Cut(line, max(room-len(end), room/2))+end, room))
	u.drawn = true
}

func (u *Display) print(format string, args ...any) {
	u.erase()
	fmt.Fprintf(u.w, format+"\n", args...)
}

// erase needs mu held by the caller.
func (u *Display) erase() {
	if u.drawn {
		fmt.Fprint(u.w, ClearLine)
		u.drawn = false
	}
}

// Event sanitizes names and notes, which may come from a lab file or a guest.
func (u *Display) Event(e steps.Event) {
	e.Step, e.Note = words.Printable(e.Step), words.Visible(e.Note)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return
	}
	switch {
	case e.End:
		word := Paint(u.color, "32", "ok")
		if e.Err != nil {
			word = Paint(u.color, "31", "failed") // the command prints the error itself
		}
		u.print("%s %s%s %s", word, e.Step, u.count, words.Seconds(e.Took))
		u.past.learn(e)
		u.begin("")
	case e.Note != "":
		u.print("   %s", e.Note)
	case e.Live != nil:
		u.look, u.left, u.seen = e.Live, e.Left, ""
	case e.Total > 0:
		u.count = fmt.Sprintf(" %d/%d", e.Done, e.Total)
	default:
		u.begin(e.Step)
	}
	u.draw()
}

// Quiet shows only the live line, for commands that print the results of steps themselves.
func (u *Display) Quiet() func(steps.Event) {
	if !u.live {
		return func(steps.Event) {}
	}
	return func(e steps.Event) {
		if e.End {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.erase()
			u.past.learn(e)
			u.begin("")
			return
		}
		u.Event(e)
	}
}

// Close removes the live line. Later events are not shown: in a file with both streams, they would follow the result.
func (u *Display) Close() {
	if u.stop != nil {
		close(u.stop)
		<-u.done
		u.stop = nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.erase()
	u.step, u.ended = "", true
}

// A Meter shows a live line on a terminal, and nothing on other outputs.
type Meter struct {
	done, ended chan struct{} // nil if nothing is shown
}

// NewMeter calls text four times a second, from another goroutine. It must be closed before other output to w.
func NewMeter(w io.Writer, env func(string) string, text func() string) *Meter {
	f := Of(w)
	if f == nil || env("TERM") == "dumb" {
		return &Meter{}
	}
	m := &Meter{make(chan struct{}), make(chan struct{})}
	go func() {
		defer close(m.ended)
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprint(f, ClearLine+text())
			case <-m.done:
				fmt.Fprint(f, ClearLine)
				return
			}
		}
	}()
	return m
}

// Close ends the meter and removes its line.
func (m *Meter) Close() {
	if m.done != nil {
		close(m.done)
		<-m.ended
	}
}

// past durations differ between machines by a factor of a hundred, but hardly between runs.
type past struct {
	path string
	took map[string]float64 // in seconds
}

const (
	worthKnowing = 3 * time.Second // shorter steps need no estimate
	mostSteps    = 500             // beyond this, all are forgotten: names of hosts and tests come and go
)

// Remember estimates the remaining time of steps from durations in the file at path, whose errors are ignored.
func (u *Display) Remember(path string) {
	if !u.live {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.past = past{path: path}
	if b, err := userfile.Read(path, userfile.Text); err == nil {
		_ = json.Unmarshal(b, &u.past.took)
	}
}

func (p *past) learn(e steps.Event) {
	if p.path == "" || e.Err != nil || e.Took < worthKnowing {
		return
	}
	if p.took == nil || len(p.took) > mostSteps {
		p.took = map[string]float64{}
	}
	p.took[e.Step] = e.Took.Seconds()
	_ = atomicfile.WriteJSON(p.path, p.took)
}

func (p *past) left(step string, took time.Duration) time.Duration {
	return time.Duration(p.took[step]*float64(time.Second)) - took
}
