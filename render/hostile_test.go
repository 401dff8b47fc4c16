package render

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path"
	"strings"
	"testing"
)

// hostile is text that would do harm wherever it is taken for more than text.
func hostile() []string {
	return []string{
		"$(touch pwned)", "`touch pwned`", "'; touch pwned; '", "\"; touch pwned; \"", "x\ntouch pwned\n",
		"x\r\ntouch pwned", "%n%%\\", "-->\n# x", "a: b\n- c", "{{.}}", "EOF\ntouch pwned\nEOF\n",
		"\u2028touch pwned", "*/ ?[a]", "-rf /", "../../etc/passwd", strings.Repeat("x", 300), "\xff\xfe", "| a |", "#",
		"",
	}
}

// FuzzHostileTextStaysText puts text into everything that comes from files of others, and looks
// whether what comes out is still what it was.
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
		v, err := newView(in)
		if err != nil {
			t.Fatal(err)
		}
		all := append(v.firmware(), v.kernel()...)
		all = append(append(append(all, v.units()...), v.tuned()...), v.guests(nil)...)
		all = append(append(all, v.switches()...), text("README.md", string(v.readme())))
		var heads, labs strings.Builder
		for _, a := range all {
			if bytes.ContainsAny(a.Data, "\x00\r") {
				t.Fatalf("%q has control characters", a.Path)
			}
			if strings.ContainsAny(a.Path, "\n %$`'\"\\*?[") || strings.Contains(a.Path, "..") {
				t.Fatalf("path %q", a.Path)
			}
			// Whatever came in has its line breaks taken away, so a line that begins with the harm was made by it.
			for line := range strings.Lines(string(a.Data)) {
				if line == "touch pwned\n" || strings.HasPrefix(line, "touch pwned") && !strings.HasSuffix(a.Path,
					".md") {
					t.Fatalf("%s has the line %q", a.Path, line)
				}
			}
			if a.Mode&0o111 == 0 {
				continue
			}
			// A script without its code: what is left are assignments, and they must come to nothing but values.
			head, _, ok := bytes.Cut(a.Data, []byte("\nset -eu\n"))
			if !ok {
				t.Fatalf("%s has no head", a.Path)
			}
			heads.WriteString("(\n" + string(head) + "\nprintf '%s|" + path.Base(a.Path) + "|' \"$lab\"\n)\n")
			labs.WriteString(v.lab + "|" + path.Base(a.Path) + "|")
		}
		// One shell for all of them: starting it takes most of the time.
		cmd := exec.Command(sh, "-c", heads.String())
		cmd.Env = []string{"PATH=/nowhere"}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != labs.String() {
			t.Fatalf("the heads print %q, want %q (%v)", out, labs.String(), err)
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
