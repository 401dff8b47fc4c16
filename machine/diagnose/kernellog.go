package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/message"
	"github.com/rackless/rackless/machine/topology"
)

type said struct {
	topology.KernelMessage
	severity        finding.Severity
	short           string
	meaning, lookAt string
	cause           int // 1 if it says why the others were printed
}

// kernelSays makes one finding for each device, titled after its worst message.
func kernelSays(check string) func(v *view, add func(finding.Finding)) {
	return func(v *view, add func(finding.Finding)) {
		var by group.By[string, said]
		for _, m := range v.Kernel.Messages {
			if k, ok := message.Find(m.Kind); ok && k.Check == check {
				by.Add(v.deviceNamed(m.Device), explained(k, m))
			}
		}
		for _, device := range by.Keys {
			list := slices.Clone(by.Of(device))
			slices.SortStableFunc(list, func(a, b said) int {
				return cmp.Or(cmp.Compare(a.severity.Rank(), b.severity.Rank()), -cmp.Compare(a.cause, b.cause))
			})
			worst := list[0]
			add(finding.Finding{Subject: device, Severity: worst.severity, Title: worst.short,
				Evidence:    "kernel log: " + words.Few(lists.Map(list, said.evidence), 6, "; "),
				Consequence: worst.meaning, Fix: worst.lookAt})
		}
	}
}

// deviceNamed also takes names of RDMA and network devices.
func (v *view) deviceNamed(name string) string {
	for i := range v.NICs {
		n := &v.NICs[i]
		if slices.Contains(n.RDMA, name) || slices.Contains(n.Netdevs, name) {
			return n.ID()
		}
	}
	return cmp.Or(name, "kernel")
}

// explained prefers the explanation of the code in a message.
func explained(k message.Kind, m topology.KernelMessage) said {
	s := said{m, finding.Severity(k.Severity), k.Short, k.Meaning, "look at: " + k.LookAt, 0}
	switch k.Name {
	case "xid":
		s.severity = finding.Info
		worst := 4
		for _, c := range s.codes(finding.Xid) {
			if severity := xidSeverity(c.Number); severity.Rank() < worst {
				worst = severity.Rank()
				s.severity, s.meaning, s.lookAt = severity, c.Meaning, c.LookAt
				s.short = fmt.Sprintf("GPU driver reports Xid %d: %s", c.Number, c.Short)
			}
		}
		if worst == 4 { // not in the table
			s.severity = finding.Warning
		}
	case "mlx5-health-syndrome":
		if list := s.codes(finding.HealthSyndrome); len(list) > 0 {
			s.short, s.cause = "the card's firmware reports "+list[0].Short, 1
			s.meaning, s.lookAt = list[0].Meaning, "look at: "+list[0].LookAt
		}
	case "mlx5-fatal-sensor":
		if list := s.codes(finding.HealthSensor); len(list) > 0 {
			s.meaning, s.lookAt = list[0].Meaning, "look at: "+list[0].LookAt
		}
	case "aer-corrected":
		if m.Count >= manyCorrected {
			s.severity = finding.Warning
		}
	}
	s.meaning = fragment(s.meaning)
	return s
}

// manyCorrected is a bad sign; a few repaired errors occur at each start of many machines.
const manyCorrected = 10

// xidSeverity ignores errors of programs, which do not concern the machine.
func xidSeverity(n int) finding.Severity {
	switch n {
	case 13, 31, 43, 45:
		return finding.Info
	case 63, 92, 94, 109, 121:
		return finding.Warning
	}
	return finding.Error
}

// codes returns the known codes of a kind.
func (s said) codes(kind string) (out []finding.Code) {
	for _, digits := range s.Codes {
		n, err := strconv.ParseInt(digits, 0, 32)
		if c, ok := finding.FindCode(kind, int(n)); ok && err == nil {
			out = append(out, c)
		}
	}
	return out
}

// evidence returns the first line, with the number of lines and all codes.
func (s said) evidence() string {
	text := fmt.Sprintf("%q", s.Line)
	kind := ""
	switch s.Kind {
	case "aer-corrected":
		kind = finding.Corrected
	case "aer-fatal", "aer-nonfatal":
		kind = finding.Uncorrected
	}
	var facts []string
	if s.Count > 1 {
		facts = append(facts, fmt.Sprintf("%d times", s.Count))
	}
	if list := s.codes(kind); kind != "" && len(list) > 0 {
		names := lists.Map(list, func(c finding.Code) string { return c.Short })
		facts = append(facts, "bits: "+strings.Join(names, ", "))
	}
	if s.Kind == "xid" && len(s.Codes) > 1 {
		facts = append(facts, "Xids: "+strings.Join(s.Codes, ", "))
	}
	if len(facts) > 0 {
		text += " (" + strings.Join(facts, "; ") + ")"
	}
	return text
}

// fragment drops capital and full stop.
func fragment(sentences string) string {
	s := []rune(strings.TrimSuffix(sentences, "."))
	if len(s) > 1 && unicode.IsLower(s[1]) || len(s) > 1 && s[1] == ' ' {
		s[0] = unicode.ToLower(s[0])
	}
	return string(s)
}
