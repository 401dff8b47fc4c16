package diagnose

import (
	"fmt"
	"strings"
)

const (
	terminalWidth = 80
	pageWidth     = 140 // as the other pages of docs
)

// Text returns the long text on the check, for a terminal.
func (c *Check) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", c.ID, c.Title)
	if c.Name != "" {
		fmt.Fprintf(&b, "Name: %s\n", c.Name)
	}
	fmt.Fprintf(&b, "Severity: %s\n\n", c.severities())
	section := func(title, body string) { fmt.Fprintf(&b, "%s\n\n%s\n", title, body) }
	section(strings.ToUpper(c.when()), wrap(c.Summary, terminalWidth))
	section("READ FROM", items("  ", c.Reads))
	section("WHAT IT MEANS", wrap(c.Means, terminalWidth))
	section("WHAT TO DO", wrap(c.Fix, terminalWidth))
	section("SOURCES", items("  ", c.Sources))
	return strings.TrimSuffix(b.String(), "\n")
}

// items writes one item a line.
func items(indent string, list []string) string {
	var b strings.Builder
	for _, s := range list {
		b.WriteString(indent + s + "\n")
	}
	return b.String()
}

// wrap breaks paragraphs at the given width. Paragraphs that begin with four spaces are commands
// and stay as they are. The result ends with a newline.
func wrap(text string, width int) string {
	var b strings.Builder
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteString("\n")
		}
		if strings.HasPrefix(paragraph, "    ") {
			b.WriteString(paragraph + "\n")
			continue
		}
		column := 0
		for word := range strings.FieldsSeq(paragraph) {
			switch {
			case column == 0:
			case column+1+len(word) > width:
				b.WriteString("\n")
				column = 0
			default:
				b.WriteString(" ")
				column++
			}
			b.WriteString(word)
			column += len(word)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// when says what Summary tells.
func (c *Check) when() string {
	if c.Name != "" {
		return "holds when"
	}
	return "found when"
}

// intro is the head of docs/checks.md.
const intro = `<!-- Made by go generate ./check from the catalogues in packages diagnose and check. Do not edit. -->

# Checks

What ` + "`rackless inspect`" + ` looks for on a host, and what ` + "`rackless verify`" +
	` compares with a plan or a lab. ` + "`rackless explain RL003`" + ` prints
one entry of this page; checks of verify have a name as well, and ` + "`rackless explain link-mtu`" + ` does the same.

| severity | says |
| --- | --- |
| error | something does not or will not work, or data will be lost or wrong |
| warning | it works, but slower or less safe than it could |
| info | worth knowing before a decision; nothing is wrong |

IDs and names stay what they are; new checks get new ones.

## Documents

The entries name reports of real users as ` + "`owner/repository#number`" + `, and these published documents:

| name here | document |
| --- | --- |
| EPYC lab | Building a Multi-Node RDMA Lab on a Single Machine (remote-lab.net): EPYC 7551P, two RTX 3090, two ConnectX-4 Lx |
| H20 guide | a guide to GPU communication on a machine with eight H20 and four bonded NICs, with measurements per path, January 2026 |
| vSphere study | RoCE SR-IOV Setup and Performance Study on vSphere 7.x, September 2022 |
| GPUDirect manual | Mellanox GPUDirect RDMA User Manual, revision 1.2 |
| pinning study | Benchmarked vCPU pinning / guest NUMA for GPU passthrough VMs: six kinds of hosts |
`

// A Group is checks that stand together on the page.
type Group struct {
	Title  string
	About  string // paragraphs of Markdown
	Checks []Check
}

// Findings returns the checks of this package as a group.
func Findings() Group {
	return Group{
		Title: "A host by itself",
		About: `Found by ` + "`rackless inspect`" +
			`. Each finding has the severity, what it is about, what was read and where, what follows from it, and
the fix for this machine.

What could not be read gives no finding. In a virtual machine the checks of links, of the IOMMU and of resets are silent, because they would judge
the emulator. Several checks are warnings on a host that serves labs and only notes elsewhere: a host serves when it has tenants, devices on a
vfio driver, isolated CPUs, hugepages (or asks for either on its command line), or a NIC for RDMA. A NIC for RDMA is here one with an RDMA device,
one for InfiniBand, one of NVIDIA (Mellanox), or any at 25 Gb/s or more.

Virtual functions, bridges, screens of management controllers and GPUs inside the processor are left out wherever a check is about cards.`,
		Checks: Catalogue(),
	}
}

// Markdown returns docs/checks.md.
func Markdown(groups []Group) string {
	var b strings.Builder
	b.WriteString(intro)
	for _, g := range groups {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", g.Title, g.About)
		if g.Checks[0].Name == "" {
			b.WriteString("| ID | severity | found when |\n| --- | --- | --- |\n")
		} else {
			b.WriteString("| ID | name | severity | holds when |\n| --- | --- | --- | --- |\n")
		}
		for _, c := range g.Checks {
			name := ""
			if c.Name != "" {
				name = "`" + c.Name + "` | "
			}
			fmt.Fprintf(&b, "| [%s](#%s) | %s%s | %s |\n", c.ID, anchor(c.heading()), name, c.severities(), c.Summary)
		}
	}
	for _, g := range groups {
		for _, c := range g.Checks {
			c.markdown(&b)
		}
	}
	return b.String()
}

func (c *Check) heading() string { return c.ID + ": " + c.Title }

func (c *Check) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n## %s\n\n", c.heading())
	if c.Name == "" {
		b.WriteString(wrap("Severity: "+c.severities()+". "+c.Summary, pageWidth))
	} else {
		b.WriteString(wrap("`"+c.Name+"`. Severity: "+c.severities()+". Holds when: "+c.Summary, pageWidth))
	}
	b.WriteString("\n**Read from**\n\n")
	for _, r := range c.Reads {
		fmt.Fprintf(b, "- %s\n", source(r))
	}
	fmt.Fprintf(b, "\n**What it means**\n\n%s", wrap(c.Means, pageWidth))
	fmt.Fprintf(b, "\n**What to do**\n\n%s", wrap(c.Fix, pageWidth))
	links := make([]string, len(c.Sources))
	for i, s := range c.Sources {
		links[i] = link(s)
	}
	b.WriteString("\n" + wrap("Sources: "+strings.Join(links, "; ")+".", pageWidth))
}

// source marks what is read as code: the file or command, without a remark in brackets after it.
func source(read string) string {
	if strings.HasPrefix(read, "the ") {
		return read
	}
	file, remark, _ := strings.Cut(read, " (")
	if remark != "" {
		remark = " (" + remark
	}
	return "`" + file + "`" + remark
}

// anchor is the fragment that GitHub gives a heading: lower case, blanks to hyphens, letters, digits and hyphens only.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return -1
	}, strings.ToLower(heading))
}

// link turns "owner/repository#number" into a link to the thread, also with a remark in brackets
// after it; anything else stays.
func link(source string) string {
	thread, remark, hasRemark := strings.Cut(source, " (")
	repository, number, ok := strings.Cut(thread, "#")
	if !ok || strings.Count(repository, "/") != 1 || strings.Contains(thread, " ") ||
		strings.Trim(number, "0123456789") != "" {
		return source
	}
	out := fmt.Sprintf("[%s](https://github.com/%s/issues/%s)", thread, repository, number)
	if hasRemark {
		out += " (" + remark
	}
	return out
}
