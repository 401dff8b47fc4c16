package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/rackless/rackless/rack"
)

// A ui shows how a longer operation goes on. On a terminal the step that runs is one live line with
// a spinner and the time; elsewhere there are only plain lines, one for each finished step and each
// note, without control characters.
type ui struct {
	w     io.Writer
	live  bool
	color bool
	width func() int // columns of the terminal; asked each time, since windows change
	now   func() time.Time

	mu    sync.Mutex
	step  string
	count string
	began time.Time
	frame int
	drawn bool // the live line is on the screen

	stop chan struct{} // closed by close; nil without a spinner
	done chan struct{}
}

// newUI starts a display on w. It must be closed before anything else is printed there.
func newUI(w io.Writer, env func(string) string) *ui {
	u := &ui{w: w, now: time.Now}
	if f := terminal(w); f != nil && env("TERM") != "dumb" {
		u.goLive(f, env("NO_COLOR") == "")
	}
	return u
}

// goLive makes the display a live one and starts its spinner.
func (u *ui) goLive(f *os.File, color bool) {
	u.live, u.color = true, color
	u.width = func() int { w, _ := columns(f); return w }
	u.stop, u.done = make(chan struct{}), make(chan struct{})
	go u.spin()
}

// spin redraws the live line until close.
func (u *ui) spin() {
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

// Control sequences that every terminal knows (ECMA-48): back to the first column and erase to the end of the line.
const clearLine = "\r\x1b[K"

// draw shows the step that runs, cut to one line: a line that wraps could not be taken back.
func (u *ui) draw() {
	if !u.live || u.step == "" {
		return
	}
	const frames = `|/-\`
	line := fmt.Sprintf("%c %s%s %s", frames[u.frame%len(frames)], u.step, u.count, seconds(u.now().Sub(u.began)))
	fmt.Fprint(u.w, clearLine+cutLine(line, u.width()-1)) // the last column stays free: some terminals wrap after it
	u.drawn = true
}

// print writes a line that stays, in place of the live one.
func (u *ui) print(format string, args ...any) {
	u.erase()
	fmt.Fprintf(u.w, format+"\n", args...)
}

func (u *ui) erase() {
	if u.drawn {
		fmt.Fprint(u.w, clearLine)
		u.drawn = false
	}
}

func (u *ui) paint(code, s string) string {
	if !u.color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// event takes one event of package rack.
func (u *ui) event(e rack.Event) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case e.End:
		word := u.paint("32", "ok")
		if e.Err != nil {
			word = u.paint("31", "failed") // the error itself is printed at the end of the command
		}
		u.print("%s %s%s %s", word, e.Step, u.count, seconds(e.Took))
		u.step, u.count = "", ""
	case e.Note != "":
		u.print("   %s", e.Note)
	case e.Total > 0:
		u.count = fmt.Sprintf(" %d/%d", e.Done, e.Total)
	default:
		u.step, u.count, u.began = e.Step, "", u.now()
	}
	u.draw()
}

// close ends the display. Called again it does nothing.
func (u *ui) close() {
	if u.stop != nil {
		close(u.stop)
		<-u.done
		u.stop = nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.erase()
	u.step = ""
}
