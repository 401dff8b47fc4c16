package facts

import (
	"fmt"
	"strconv"
	"strings"
)

// tick is the unit of CPU times in /proc, in seconds: USER_HZ, which is 100 on every architecture
// that Linux runs on today (include/asm-generic/param.h).
const tick = 0.01

// CPUTime is what all CPUs of this machine together have done since it was started, in seconds.
type CPUTime struct {
	Busy  float64 // user, system and interrupts; guests are in user
	Steal float64 // taken by the hypervisor that this machine runs on
}

// ParseCPUTime reads /proc/stat.
//
// Source: proc_stat(5).
func ParseCPUTime(stat string) (CPUTime, error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	// cpu user nice system idle iowait irq softirq steal guest guest_nice
	if len(fields) < 9 || fields[0] != "cpu" {
		return CPUTime{}, fmt.Errorf("/proc/stat begins with %q: want cpu and 8 numbers or more", clip(line))
	}
	var ticks [8]float64
	for i := range ticks {
		n, err := strconv.ParseUint(fields[i+1], 10, 64)
		if err != nil {
			return CPUTime{}, fmt.Errorf("/proc/stat: field %d: %w", i+2, err)
		}
		ticks[i] = float64(n)
	}
	// iowait is idle time with a reason: another task could have run. guest and guest_nice are left out, since the
	// kernel has counted them in user and nice already.
	return CPUTime{
		Busy:  tick * (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]),
		Steal: tick * ticks[7],
	}, nil
}

// Fields of stat behind the name, as in process.go.
const (
	statUserTime   = 14 - 3
	statSystemTime = 15 - 3
)

// ParseProcessTime reads from /proc/PID/stat how long a process has used CPUs, with all threads, in seconds.
//
// Source: proc_pid_stat(5).
func ParseProcessTime(stat string) (float64, error) {
	_, _, fields, err := splitStat(stat, statSystemTime)
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, i := range []int{statUserTime, statSystemTime} {
		n, err := strconv.ParseUint(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("stat %q: CPU time: %w", clip(stat), err)
		}
		sum += tick * float64(n)
	}
	return sum, nil
}
