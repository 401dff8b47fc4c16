package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/rackless/rackless/rack"
)

// A ui shows how a longer operation goes on: on a terminal one live line a step with a spinner and the time, else plain lines.
type ui struct {
	w     io.Writer
	live  bool
	color bool

	mu    sync.Mutex
	step  string
	count string
	began time.Time
	frame int
	stop  chan struct{}
	done  chan struct{}
}

func newUI(w io.Writer, env func(string) string) *ui {
	u := &ui{w: w}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && env("TERM") != "dumb" {
		u.live = true
		u.color = env("NO_COLOR") == ""
		u.stop, u.done = make(chan struct{}), make(chan struct{})
		go u.spin()
	}
	return u
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

func (u *ui) draw() {
	if u.step == "" {
		return
	}
	const frames = `|/-\`
	fmt.Fprintf(u.w, "\r\x1b[K%c %s%s %s", frames[u.frame%len(frames)], u.step, u.count, seconds(time.Since(u.began)))
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
	if u.live {
		fmt.Fprint(u.w, "\r\x1b[K")
	}
	switch {
	case e.End && e.Err != nil:
		fmt.Fprintf(u.w, "%s %s%s %s\n", u.paint("31", "failed"), e.Step, u.count, seconds(e.Took))
		u.step, u.count = "", ""
	case e.End:
		fmt.Fprintf(u.w, "%s %s%s %s\n", u.paint("32", "ok"), e.Step, u.count, seconds(e.Took))
		u.step, u.count = "", ""
	case e.Note != "":
		fmt.Fprintf(u.w, "   %s\n", e.Note)
	case e.Total > 0:
		u.count = fmt.Sprintf(" %d/%d", e.Done, e.Total)
	default:
		u.step, u.count, u.began = e.Step, "", time.Now()
	}
	if u.live {
		u.draw()
	}
}

// close ends the live line.
func (u *ui) close() {
	if u.live {
		close(u.stop)
		<-u.done
		u.mu.Lock()
		defer u.mu.Unlock()
		fmt.Fprint(u.w, "\r\x1b[K")
	}
}

// seconds prints a duration as "1.23 s".
func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
