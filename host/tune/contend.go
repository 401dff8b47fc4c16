package tune

import (
	"context"
	"fmt"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/lists"
)

// A Contender is a running service that changes the same settings as a lab. rackless does not stop it, so the user has
// to know.
type Contender struct {
	Service string `json:"service"`
	Sets    string `json:"sets"`
	Fix     string `json:"fix"`
}

// contenders lacks irqbalance because a drop-in configures it.
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

// Contenders returns the services that run, in a fixed order.
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
	states := strings.Fields(string(out))
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
