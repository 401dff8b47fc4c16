// Package vm runs one QEMU process, for any kind of machine, and finds it from another process. It knows nothing of
// labs and hosts.
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

// State is the state of a machine.
type State string

// Distinguishable states.
const (
	Running State = "running"
	Paused  State = "paused"
	Dead    State = "dead" // the process does not exist
)

// QueryState asks QEMU. If it is alive but does not answer within a second, it counts as running: busy, not dead.
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

// Strays returns all QEMUs with a log below dir, also without a state file, which a killed rackless may have left.
func Strays(dir string) ([]Process, error) {
	// The serial port's log. The option's name excludes directories that only end like this one.
	return ProcessesUsing("qemu-system", ",logfile="+Escape(dir)+"/")
}

// clockWait is for choosing a clock: on an idle core Linux does so 2 to 3 s after its start, about when the agent
// answers.
const clockWait = 20 * time.Second

const clocksourceFile = "/sys/devices/system/clocksource/clocksource0/current_clocksource"

// ErrClock means that a template's TSC was not measured reliably.
var ErrClock = errors.New("the template's kernel could not measure its clock")

// TrustTSC reports whether templates are told not to doubt their TSC. Under TCG it is the host's, and as stable. But a
// guest compares it with a timer that it reads through QEMU, and considers it unstable if the machine gives no time
// between two readings: 5 of 6 boots beside six busy loops on 2 cores did. Then it falls back to the ACPI timer, which
// costs an exit per reading, and perftest, which compares the two for 0.2 s before it measures, refuses most runs. The
// template's choice applies to every clone.
//
// Under KVM guests use KVM's clock.
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
		// all based on a TSC that a kernel considers stable
		return true
	}
	return false
}

// AwaitClock waits until a guest's kernel has measured its TSC against the ACPI timer for a second. The first
// measurement, of some milliseconds, can be far off if the guest was interrupted (544 MHz of 2300 were seen). Then the
// kernel drops the second one silently, and AwaitClock returns [ErrClock]. Otherwise the time is right to some parts in
// a million.
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
