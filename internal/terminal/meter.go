package terminal

import (
	"fmt"
	"io"
	"time"
)

// A Meter shows the state of an operation as one live line on a terminal, and nothing elsewhere.
type Meter struct {
	done, ended chan struct{} // nil if nothing is shown
}

// NewMeter starts a meter on w. It calls text four times a second, from another goroutine. It must be closed
// before anything else is printed on w. env is os.Getenv.
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
