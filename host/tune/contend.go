package tune

import (
	"context"
	"fmt"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/lists"
)

// A Contender is a running service that sets what a lab sets, too. Who comes last has it, so people
// have to know: nobody stops it for them.
type Contender struct {
	Service string `json:"service"`
	Sets    string `json:"sets"`
	Fix     string `json:"fix"`
}

// contenders are services that are known to, with what to do. irqbalance is told by a drop-in and not listed.
var contenders = []Contender{
	{"tuned.service", "governors, sysctls, interrupts",
		"use the profile that rackless plan --out writes (tuned/), or systemctl disable --now tuned"},
	{"power-profiles-daemon.service", "governors and energy preferences",
		"powerprofilesctl set performance, or systemctl disable --now power-profiles-daemon"},
	{"tlp.service", "governors and energy preferences", "systemctl disable --now tlp"},
	{"auto-cpufreq.service", "governors", "systemctl disable --now auto-cpufreq"},
	{"ksmtuned.service", "KSM", "systemctl disable --now ksmtuned"},
	{"numad.service", "placement of processes and memory on NUMA nodes", "systemctl disable --now numad"},
}

// Contenders returns those that run, in a fixed order.
func Contenders(ctx context.Context, s *change.System) ([]Contender, error) {
	if !systemdRuns(s) {
		return nil, nil
	}
	argv := []string{"systemctl", "show", "--property=ActiveState", "--value", "--"}
	argv = append(argv, lists.Map(contenders, func(c Contender) string { return c.Service })...)
	out, err := s.Query(ctx, argv...)
	if err != nil {
		return nil, err
	}
	states := strings.Fields(string(out)) // a line each, with an empty one between them
	if len(states) != len(contenders) {
		return nil, fmt.Errorf("%s: %d states of %d services: %q", strings.Join(argv, " "), len(states),
			len(contenders), out)
	}
	var running []Contender
	for i, c := range contenders {
		if states[i] == "active" {
			running = append(running, c)
		}
	}
	return running, nil
}
