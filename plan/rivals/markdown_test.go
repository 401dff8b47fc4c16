package rivals

import (
	"fmt"
	"strings"
)

// markdown returns docs/rivals.md: all rivals with their rules, their sources and where they differ.
func markdown() string {
	var b strings.Builder
	b.WriteString(`# Rivals

` + "`rackless plan --compare`" +
		` shows what the same lab would cost as others place it: by their published rules, under our cost model, term by term.
This page is made from the package that does it (` + "`plan/rivals`" +
		`): what each does, where that is written, and what we had to fill in.

What holds for all of them:

- Lab nodes are placed one after another in the order of the lab, each with what the earlier ones left. Nothing is moved afterwards.
- Where a rival leaves something to chance, the lowest address or number is taken.
- Where a rival cannot say what the lab asks, it gets what its operators would do. That is named under "Filled in".
- A placement that breaks our hard rules (floating vCPUs, a core of two owners) is costed as the nearest placement in whole cores, rounded in the rival's favour,
  and the broken rules are listed with it. Such a cost is too low rather than too high.
- A refusal is an answer: the rival's own reason is shown, with the lab node that it stopped at.
- Affinity between lab nodes is beyond all of them. Where chance does not keep it, it is listed as broken.

| id | what it is | version read |
| --- | --- | --- |
`)
	for _, r := range All() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.ID, escape(r.Name), escape(r.Version))
	}
	for _, r := range All() {
		fmt.Fprintf(&b, "\n## %s\n\n`%s`, after %s.\n\n", escape(r.Name), r.ID, escape(r.Version))
		for i, rule := range r.Rules {
			fmt.Fprintf(&b, "%d. %s\n", i+1, escape(rule))
		}
		b.WriteString("\nFilled in, and known differences:\n\n")
		for _, d := range r.Differs {
			fmt.Fprintf(&b, "- %s\n", escape(d))
		}
		b.WriteString("\nSources:\n\n")
		for _, s := range r.Sources {
			fmt.Fprintf(&b, "- %s\n", escape(s))
		}
	}
	return b.String()
}

// escape keeps what Markdown would take for its own: <vcpupin> is no HTML and _fit_ no emphasis.
// Addresses of pages stay as they are.
func escape(text string) string {
	words := strings.Split(text, " ")
	for i, w := range words {
		if !strings.HasPrefix(w, "https://") {
			words[i] = strings.NewReplacer("<", `\<`, "_", `\_`, "*", `\*`, "[", `\[`).Replace(w)
		}
	}
	return strings.Join(words, " ")
}
