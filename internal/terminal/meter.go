package terminal

import (
	"fmt"
	"io"
	"time"
)

// A Meter shows how something goes on: as one live line on a terminal, and not at all elsewhere.
type Meter struct {
	done, ended chan struct{} // nil where nothing is shown
}

// NewMeter starts a meter on w, whose text is asked for four times a second. It must be closed before
// anything else is printed there. env is os.Getenv.
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

// Close takes the line away.
func (m *Meter) Close() {
	if m.done != nil {
		close(m.done)
		<-m.ended
	}
}
