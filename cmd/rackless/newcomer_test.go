package main

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// Each error explains the problem and suggests a correct command.
func TestWhatANewcomerTypes(t *testing.T) {
	t.Chdir("../..")
	for line, want := range map[string]string{
		"plna lab.yaml":  `unknown command "plna"; did you mean plan?`,
		"help upp":       `unknown command "upp"; did you mean up?`,
		"help lab chekc": `lab: unknown command "chekc"; did you mean check?`,
		"up pair":        "pair: no such lab file; did you mean examples/pair.yaml?",
		"up examples/piar.yaml": "examples/piar.yaml: no such lab file; " +
			"did you mean examples/pair.yaml?",
		"plan nothing.yaml":              "nothing.yaml: no such lab file; there are examples/",
		"lab check docs":                 "docs: a directory and no lab file; make one with: rackless init",
		"recommend examples":             "examples: a directory and no lab file; there are examples/",
		"up README.md":                   "README.md:3:1: anchors",
		"up --acel kvm a.yaml":           "unknown flag: --acel; did you mean --accel?",
		"up --accel kvmm a.yaml":         "want auto, kvm or tcg",
		"lab check a.yaml b.yaml":        "want one LAB.yaml, have 2 arguments",
		"bench pair --tests ib_wirte_bw": `there is no test "ib_wirte_bw"; did you mean ib_write_bw?`,
		"bench pair --pairs al":          `"al" are no pairs of nodes: want auto, all, first, ring, or CLIENT:SERVER`,
		"exec vm00 --":                   "want a command after --",
		"exec":                           "rackless exec NODE -- COMMAND",
		"ssh vm00": "node vm00: no lab is running; bring one up with: " +
			"rackless up LAB.yaml",
		"inspect ssh://node1":                  "hosts are read by ssh with: rackless inspect --host ssh://node1",
		"plan examples/pair.yaml --host node1": "node1: no such file or directory; rackless host snapshot --out FILE",
		"host snapshot host.tar.zst":           "rackless host snapshot --out host.tar.zst",
		"host snapshot --out /none/x.zst":      "open /none/x.zst: no such file or directory",
		"emulate dekstop":                      "did you mean desktop?",
		"emulate desktop ls":                   "rackless emulate desktop -- ls",
		"emulate examples/pair.yaml": "is not the profile of an emulated host: " +
			"it is a lab file: rackless up",
		"study run examples/pair.yaml": "is not the file of a study: it is a lab file: rackless up",
		"up examples/studies/mtu.yaml": "is not a lab file: it is the file of a study: " +
			"rackless study run takes it",
		"up examples/hosts/desktop.yaml":         "is not a lab file: it is the profile of an emulated host",
		"study report demo":                      "run one with: rackless study run STUDY.yaml",
		"results raw x":                          "want a number",
		"plan examples/pair.yaml --time-limit 5": "want a number with its unit, such as 30s",
		"link set pair --loss 200%":              "want 0% to 100%",
		"report A B":                             `"A" is not the name of a lab`,
		"version extra":                          "want no argument, have 1 argument",
		"image rm":                               "want keys, which rackless image ls shows, or --all",
		"explain RL999":                          "rackless explain lists the findings",
		"explain mtu":                            "did you mean link-mtu or rdma-active-mtu?",
		"init examples/pair.yaml":                "give another name",
		"verify piar":                            "bring one up with: rackless up LAB.yaml",
	} {
		t.Run(line, func(t *testing.T) {
			a, out, stderr := testApp(t)
			code := a.run(t.Context(), strings.Fields(line))
			if code != exitUsage && code != exitFailed || !strings.Contains(stderr.String(), want) || out.Len() > 0 {
				t.Errorf("status %d, printed %q, said %q; want an error with %q", code, out, stderr, want)
			}
		})
	}
	for line, want := range map[string]string{ // help in all positions
		"help up": "rackless up [LAB.yaml] [flags]", "up -h a.yaml": "rackless up [LAB.yaml] [flags]",
		"help lab check": "rackless lab check [LAB.yaml]", "help emulate desktop": "rackless emulate PROFILE",
		"help up pair": "rackless up [LAB.yaml] [flags]", "study ls": "run one with: rackless study run",
	} {
		a, out, stderr := testApp(t)
		if code := a.run(t.Context(), strings.Fields(line)); code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: status %d, %q, %q", line, code, out, stderr)
		}
	}
}

func TestHelpFitsEightyColumns(t *testing.T) {
	a, _, _ := testApp(t)
	var lines [][]string
	walk(newRootCmd(a), func(c *cobra.Command) { lines = append(lines, strings.Fields(c.CommandPath())[1:]) })
	for _, args := range lines {
		a, out, stderr := testApp(t)
		env := a.env
		a.env = func(name string) string {
			if name == "COLUMNS" {
				return "80"
			}
			return env(name)
		}
		if code := a.run(t.Context(), append(args, "--help")); code != 0 || out.Len() == 0 {
			t.Errorf("%q: status %d, %s", args, code, stderr)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 &&
				!slices.Contains(args, "completion") {
				t.Errorf("%q: %d columns: %s", args, n, line)
			}
		}
	}
}
