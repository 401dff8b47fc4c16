// Package vm runs one QEMU process, for any kind of machine: it starts the process, reads its state, and finds it again
// from another process.
//
// It knows nothing of labs and hosts, whose packages say what the machine is like.
package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/qapi"
)

// State is what a machine is doing.
type State string

// The states that can be told apart.
const (
	Running State = "running"
	Paused  State = "paused"
	Dead    State = "dead" // no such process any more
)

// QueryState asks the QEMU of the machine in dir what it is doing. One that lives but does not answer
// within a second is taken to be running: it is busy, not dead.
func QueryState(ctx context.Context, p Process, dir string) (State, error) {
	if !p.Alive() {
		return Dead, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	q, err := qapi.DialQMP(ctx, filepath.Join(dir, SocketQMP))
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Running, nil
	case err != nil && !p.Alive():
		return Dead, nil
	case err != nil:
		return "", err
	}
	defer q.Close()
	var st struct {
		Status string `json:"status"`
	}
	if err := q.Call(ctx, "query-status", nil, &st); err != nil {
		return "", err
	}
	if st.Status == "running" || st.Status == "inmigrate" {
		return Running, nil
	}
	return Paused, nil
}

// Strays returns every QEMU that has a log below dir, known to a state file or not: a rackless that
// was killed may have left one that no file knows.
func Strays(dir string) ([]Process, error) {
	// Every machine logs its serial port into its directory. The option's name before the path keeps
	// out a directory that ends like this one.
	return ProcessesUsing("qemu-system", ",logfile="+Escape(dir)+"/")
}

// clockWait bounds how long a booted template may take to settle on a clock. On an idle core Linux
// does so 2 to 3 s after its start, about when the agent answers.
const clockWait = 20 * time.Second

// clocksourceFile holds what a kernel tells the time by.
const clocksourceFile = "/sys/devices/system/clocksource/clocksource0/current_clocksource"

// ErrClock marks a template whose kernel did not measure its TSC well.
var ErrClock = errors.New("the template's kernel could not measure its clock")

// TrustTSC reports whether templates are told not to doubt their TSC. Under TCG it is the host's,
// so it is as steady as that; but a guest compares it with a timer that it reads through QEMU, and
// on a machine that gives the guest no time between the two readings finds it unsteady: 5 of 6
// boots beside six busy loops on 2 cores did. The ACPI timer that it falls back on costs an exit
// each time it is read, and perftest, which compares the two for 0.2 s before it measures, then
// refuses most runs. The choice is made once, in the template, and is every clone's.
//
// Under KVM guests have a clock of KVM's.
func TrustTSC(accel string) bool {
	if accel != "tcg" {
		return false
	}
	b, err := os.ReadFile(clocksourceFile)
	if err != nil {
		return false
	}
	switch strings.TrimSpace(string(b)) {
	case "tsc", "kvm-clock", "hyperv_clocksource_tsc_page":
		// all are read from a TSC that the host's kernel, or the one below it, has found steady
		return true
	}
	return false
}

// AwaitClock waits until a guest's kernel has measured its TSC against the ACPI timer for a
// second. Its first measurement, of some milliseconds, can be far off where the guest was
// interrupted meanwhile (544 MHz of 2300 were seen), and then the second one is dropped without a
// word but the one that is missing, and the guest's time is wrong: that is [ErrClock]. Without an
// error it is right to some parts in a million.
func AwaitClock(ctx context.Context, a *guest.Agent) error {
	for began := time.Now(); ; {
		source, err := a.Output(ctx, "cat", clocksourceFile)
		if err != nil {
			return err
		}
		if source = bytes.TrimSpace(source); string(source) == "tsc" {
			break
		}
		if time.Since(began) > clockWait {
			return fmt.Errorf("%w: after %v it runs on %q", ErrClock, clockWait, source)
		}
		if err := wait.For(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	log, err := a.Output(ctx, "dmesg")
	if err == nil && !bytes.Contains(log, []byte("tsc: Refined TSC clocksource calibration: ")) {
		err = ErrClock
	}
	return err
}
