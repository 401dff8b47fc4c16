package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rackless/rackless/guest"
)

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
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
	log, err := a.Output(ctx, "dmesg")
	if err == nil && !bytes.Contains(log, []byte("tsc: Refined TSC clocksource calibration: ")) {
		err = ErrClock
	}
	return err
}
