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

// A said is a message of the kernel log with its explanation.
type said struct {
	topology.KernelMessage
	severity        finding.Severity
	short           string
	meaning, lookAt string
	cause           int // 1 if the message says why the others were printed
}

// kernelSays makes a rule that finds, for each device, the messages of the kernel log that belong to a check. One
// finding has all messages of a device, and the worst of them gives its title.
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

// deviceNamed returns the ID of the device that the kernel calls name, which may be an RDMA or network device.
func (v *view) deviceNamed(name string) string {
	for i := range v.NICs {
		n := &v.NICs[i]
		if slices.Contains(n.RDMA, name) || slices.Contains(n.Netdevs, name) {
			return n.ID()
		}
	}
	return cmp.Or(name, "kernel")
}

// explained returns a message with the explanation of its kind, or of the code in it, which says more.
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
		if worst == 4 { // Xids that are not in the table
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

// manyCorrected is the number of repaired errors of a device that counts as a sign of a bad link. A few occur at each
// start of many machines.
const manyCorrected = 10

// xidSeverity returns the severity of an Xid. Errors of programs do not concern the machine.
func xidSeverity(n int) finding.Severity {
	switch n {
	case 13, 31, 43, 45:
		return finding.Info
	case 63, 92, 94, 109, 121:
		return finding.Warning
	}
	return finding.Error
}

// codes returns the codes of a kind in the message's lines that are known.
func (s said) codes(kind string) (out []finding.Code) {
	for _, digits := range s.Codes {
		n, err := strconv.ParseInt(digits, 0, 32)
		if c, ok := finding.FindCode(kind, int(n)); ok && err == nil {
			out = append(out, c)
		}
	}
	return out
}

// evidence returns the first line of the message, with the number of lines and the codes in all of them.
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

// fragment turns sentences into the form of a consequence: no capital, and no full stop at the end.
func fragment(sentences string) string {
	s := []rune(strings.TrimSuffix(sentences, "."))
	if len(s) > 1 && unicode.IsLower(s[1]) || len(s) > 1 && s[1] == ' ' {
		s[0] = unicode.ToLower(s[0])
	}
	return string(s)
}
