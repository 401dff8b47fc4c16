package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func hostile() []string {
	return []string{
		"$(touch pwned)", "`touch pwned`", "'; touch pwned; '", "\"; touch pwned; \"", "x\ntouch pwned\n",
		"x\r\ntouch pwned", "%n%%\\", "-->\n# x", "a: b\n- c", "{{.}}", "EOF\ntouch pwned\nEOF\n",
		"\u2028touch pwned", "*/ ?[a]", "-rf /", "../../etc/passwd", strings.Repeat("x", 300), "\xff\xfe", "| a |", "#",
		"",
	}
}

// FuzzHostileTextStaysText puts hostile text into all fields from other people's files; it must stay text.
func FuzzHostileTextStaysText(f *testing.F) {
	for _, s := range hostile() {
		f.Add(s)
	}
	sh := findProgram(f, "sh")
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 10_000 {
			t.Skip("longer than any name")
		}
		in := hostR740(t)
		in.Made = s
		in.Plan.Host.Name, in.Plan.Stopped, in.Plan.Notes, in.Plan.KernelWhy[0] = s, s, []string{s}, s
		in.Host.System.Vendor, in.Host.System.Product, in.Host.System.CPUModel, in.Host.System.BIOS = s, s, s, s
		in.Host.CPUs.SMT = s
		in.Host.Kernel.Release, in.Host.Kernel.Cmdline = s, &s
		in.Host.Tenants[0].Name = s
		in.Host.NICs[0].Netdevs = []string{s}
		in.Host.NICs[0].Driver, in.Host.PCI[0].Driver, in.Host.NICs[0].Model = s, s, s
		in.Plan.Nodes[0].NICs[0].MAC, in.Plan.Nodes[0].NICs[0].Name = s, s
		in.Plan.Nodes[0].Cards[0].Model = s
		in.Plan.VFs[0].PF = s
		in.Plan.Nodes[0].Name, in.Plan.Lab, in.Lab.Name = s, s, s
		in.Steps = []Step{{What: s, Why: s, Risk: s, Commands: []string{"exit 3"}}}
		v, err := newView(in)
		if err != nil {
			t.Fatal(err)
		}
		all := append(v.firmware(), v.kernel()...)
		all = slices.Concat(all, v.commands(), v.hostFiles(), v.tuned(), v.guests(nil))
		all = append(append(all, v.switches()...), text("README.md", string(v.readme())))
		for _, a := range all {
			if bytes.ContainsAny(a.Data, "\x00\r") {
				t.Fatalf("%q has control characters", a.Path)
			}
			if strings.ContainsAny(a.Path, "\n %$`'\"\\*?[") || strings.Contains(a.Path, "../..") {
				t.Fatalf("path %q", a.Path)
			}
			// Line breaks are removed from all input, so such a line was created by the harmful text.
			for line := range strings.Lines(string(a.Data)) {
				if line == "touch pwned\n" || strings.HasPrefix(line, "touch pwned") && !strings.HasSuffix(a.Path,
					".md") {
					t.Fatalf("%s has the line %q", a.Path, line)
				}
			}
			if a.Path != "commands.txt" {
				continue
			}
			cmd := exec.Command(sh, "-c", string(a.Data))
			cmd.Env = []string{"PATH=/nowhere"}
			out, err := cmd.CombinedOutput()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 3 || len(out) > 0 {
				t.Fatalf("the commands print %q (%v):\n%s", out, err, a.Data)
			}
		}
	})
}

func TestHostileTextInYAMLAndJSON(t *testing.T) {
	t.Parallel()
	for _, s := range hostile() {
		in := hostEPYC(t)
		in.Made = s
		in.Plan.Nodes[0].Name = s
		in.Plan.Nodes[0].NICs[0].Name = s
		v, err := newView(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range v.guests(nil) {
			switch {
			case strings.HasSuffix(a.Path, "user-data"):
				u := decodeYAML[userData](t, a.Data)
				if a.Path == guestDir(s)+"user-data" && u.Hostname != oneLine(s) {
					t.Errorf("host name %q of %q", u.Hostname, s)
				}
			case strings.HasSuffix(a.Path, "network-config"):
				decodeYAML[netplanBody](t, a.Data)
			case strings.HasSuffix(a.Path, ".yaml"):
				decodeYAML[netplanFile](t, a.Data)
			case strings.HasSuffix(a.Path, ".nmconnection"):
				parseKeyfile(t, a.Data)
			}
		}
		if f, err := PlanFile(in.Plan); err != nil || !json.Valid(f.Data) {
			t.Errorf("plan.json of %q: %v", s, err)
		}
	}
}
