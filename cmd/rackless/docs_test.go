package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/lab"
)

func pages(t *testing.T) map[string]string {
	t.Helper()
	all, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(all) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	out := make(map[string]string)
	for _, pattern := range []string{"../../*.md", "../../docs/studies/*.md", "../../.github/*/*",
		"../../.gitlab/*/*"} {
		more, err := filepath.Glob(pattern)
		if err != nil || len(more) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		all = append(all, more...)
	}
	// The changelog describes past versions.
	all = slices.DeleteFunc(all, func(path string) bool { return strings.HasSuffix(path, "CHANGELOG.md") })
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimPrefix(path, "../../")] = string(b)
	}
	return out
}

type mention struct {
	line int
	text string
	bare bool // in a sentence, without arguments
}

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	// shell prompts, and keys in files of CI systems
	prompt = regexp.MustCompile(`^(laptop\$ |host# |\$ |sudo |bin/)+`)
	inYAML = regexp.MustCompile(`^- (run: )?`)
	// a description in help, or shell syntax
	notIts      = regexp.MustCompile(`\s{2,}.*$|\s[|>#].*$`)
	substituted = regexp.MustCompile(`\$\([^)]*\)`)
	optional    = strings.NewReplacer("[", "", "]", "")
)

// commands returns calls in code blocks, code spans, and headings. A flag in its own span belongs to the command at the
// start of its table row.
func commands(page, program string) []mention {
	is := func(s string) bool { return s == program || strings.HasPrefix(s, program+" ") }
	var out []mention
	fenced := false
	number := 0
	for line := range strings.Lines(page) {
		number++
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
			continue
		}
		indented := strings.HasPrefix(line, "  ")
		code := prompt.ReplaceAllString(strings.TrimSpace(line), "")
		if fenced {
			code = inYAML.ReplaceAllString(code, "")
		}
		if (fenced || indented) && is(code) {
			out = append(out, mention{number, notIts.ReplaceAllString(substituted.ReplaceAllString(code, "X"), ""),
				false})
		}
		if fenced {
			continue
		}
		if _, heading, ok := strings.Cut(line, "# "); ok && strings.HasPrefix(line, "#") && is(heading) {
			out = append(out, mention{number, optional.Replace(heading), true})
		}
		inRow := ""
		for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
			switch span := prompt.ReplaceAllString(m[1], ""); {
			case is(span):
				out = append(out, mention{number, optional.Replace(span), true})
				inRow = span
			case strings.HasPrefix(line, "| `") && inRow != "" && strings.HasPrefix(span, "-"):
				out = append(out, mention{number, inRow + " " + span, true})
			}
		}
	}
	return out
}

func shellWords(line string) []string {
	var words []string
	for line != "" {
		at := strings.IndexAny(line, `'"`)
		if at < 0 {
			return append(words, strings.Fields(line)...)
		}
		words = append(words, strings.Fields(line[:at])...)
		quoted, rest, _ := strings.Cut(line[at+1:], line[at:at+1])
		words, line = append(words, quoted), rest
	}
	return words
}

func parseOnly(root *cobra.Command, m mention) error {
	root.InitDefaultHelpCmd()
	args := shellWords(m.text)[1:]
	if len(args) > 0 && args[0] == "VERB" { // stands for any verb
		args = args[1:]
	}
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	// their argument is a profile or a lab
	takesMore := cmd.Name() == "emulate" || cmd.Name() == "bench"
	if cmd.HasSubCommands() && !takesMore && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("%s has no command %s", cmd.CommandPath(), rest[0])
	}
	if now := cmd.Annotations[cli.Now]; now != "" {
		return fmt.Errorf("%s is now rackless %s", cmd.CommandPath(), now)
	}
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	asksForHelp := cmd.Flags().Changed("help") || cmd.Flags().Changed("version")
	operands := cmd.Flags().Args()
	if asksForHelp || m.bare && len(operands) == 0 {
		return nil
	}
	return cmd.ValidateArgs(operands)
}

func TestEveryCommandThatThePagesAndTheHelpShowExists(t *testing.T) {
	a, _, _ := testApp(t)
	texts := pages(t)
	walk(newRootCmd(a), func(c *cobra.Command) {
		if c.Name() == "completion" || c.Parent() != nil && c.Parent().Name() == "completion" {
			return // cobra's own help
		}
		texts[c.CommandPath()+" --help"] = c.Long + "\n" + c.Example
	})
	least := map[string]int{"README.md": 15, "docs/json.md": 3, "rackless --help": 7, "rackless bench --help": 3}
	for name, text := range texts {
		found := commands(text, "rackless")
		for _, m := range found {
			if err := parseOnly(newRootCmd(a), m); err != nil {
				t.Errorf("%s:%d: %q: %v", name, m.line, m.text, err)
			}
		}
		if len(found) < least[name] {
			t.Errorf("%s: %d commands found, want at least %d: are they still looked for where they stand?", name,
				len(found), least[name])
		}
	}
}

// parseOnly must refuse wrong commands.
func TestCommandsThatDoNotExistAreSeen(t *testing.T) {
	tests := []struct{ page, want string }{
		{"`rackless fbric`", "rackless has no command fbric"},
		{"## rackless lsof [LAB]", "rackless has no command lsof"},
		{"    bin/rackless up --overcomit a.yaml", "unknown flag: --overcomit"},
		{"```\n$ rackless bench pair --quick=perhaps\n```", "invalid argument"},
		{"  rackless ls -o xml   the labs", "invalid argument"},
		{"`rackless image bild`", "rackless image has no command bild"},
		{"```\n      - run: rackless verify -o junitt lab > verify.xml\n```", "invalid argument"},
		{"```\n    - rackless doun lab\n```", "rackless has no command doun"},
		{"`sudo rackless prepare --yess lab.yaml`", "unknown flag: --yess"},
		{"  rackless exec", "want a node and a command"},
		{"`rackless capture pair`", "is now rackless link capture"},
		{"  rackless up a.yaml b.yaml", "want one LAB.yaml"},
		{"| `rackless bench pair` | all; `--quik` for less |", "unknown flag: --quik"},
		{"`rackless up a.yaml b.yaml`", "want one LAB.yaml"},

		{"`rackless up` and `rackless VERB --help`, `rackless --version`", ""},
		{"| `rackless bench pair` | all; `--quick` for less |", ""},
		{"  rackless exec vm00 -- ip link --no-such-flag   anything else", ""},
		{"## rackless ls [LAB]", ""},
		{"  rackless link capture pair --out - | tshark -r -", ""},
		{"    rackless lab schema > $(mktemp -t x)  # for editors", ""},
		{"rackless fbric in a sentence, and `make fbric`", ""},
	}
	for _, tt := range tests {
		t.Run(tt.page, func(t *testing.T) {
			a, _, _ := testApp(t)
			var errs []string
			for _, m := range commands(tt.page, "rackless") {
				if err := parseOnly(newRootCmd(a), m); err != nil {
					errs = append(errs, err.Error())
				}
			}
			got := strings.Join(errs, "; ")
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestEveryMakeTargetThatThePagesShowExists(t *testing.T) {
	b, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`).FindAllStringSubmatch(string(b), -1) {
		targets = append(targets, m[1])
	}
	n := 0
	for name, page := range pages(t) {
		for _, m := range commands(page, "make") {
			for _, arg := range strings.Fields(m.text)[1:] {
				if strings.HasPrefix(arg, "#") {
					break
				}
				if n++; !strings.Contains(arg, "=") && !slices.Contains(targets, arg) {
					t.Errorf("%s:%d: %q: the Makefile has no target %s; it has %q", name, m.line, m.text, arg, targets)
				}
			}
		}
	}
	if n < 4 {
		t.Errorf("%d targets found, want at least 4", n)
	}
}

func TestTheREADMEShowsTheLabFileThatItNames(t *testing.T) {
	readme := pages(t)["README.md"]
	_, rest, ok := strings.Cut(readme, "This is all of `examples/pair.yaml`")
	if !ok {
		t.Fatal("README.md no longer shows examples/pair.yaml")
	}
	_, rest, _ = strings.Cut(rest, "```yaml\n")
	shown, _, _ := strings.Cut(rest, "```")
	b, err := os.ReadFile("../../examples/pair.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if shown != string(b) {
		t.Errorf("README.md shows\n%s\nexamples/pair.yaml is\n%s", shown, b)
	}

	if n := strings.Count(readme, "\n"); n > 150 {
		t.Errorf("README.md has %d lines, and nobody reads more than 150", n)
	}

	// Shorter spans occur within sentences.
	spans := 0
	for line := range strings.Lines(readme) {
		for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
			if !strings.HasPrefix(m[1], "nodes: ") {
				continue
			}
			spans++
			l, err := lab.Parse("README.md", []byte("name: sixteen\n"+m[1]+"\n"))
			if err != nil || len(l.Nodes) != 16 {
				t.Errorf("%s: %v, want a lab of sixteen", m[1], err)
			}
		}
	}
	if spans == 0 {
		t.Error("README.md no longer shows a lab of sixteen")
	}
}

func TestTheSnippetsForEditorsAreLabFiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../examples/vscode/rackless.code-snippets")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]struct{ Body []string }
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	filled := func(name string) string {
		return regexp.MustCompile(`\$\{\d:([^}]*)\}`).ReplaceAllString(strings.Join(all[name].Body, "\n"), "$1")
	}
	file := filled("rackless lab") + "\n  " + filled("rackless node") + "\n"
	if l, err := lab.Parse("snippets", []byte(file)); err != nil || len(l.Nodes) != 3 {
		t.Errorf("%v in\n%s", err, file)
	}
}

// anchors are link targets of headings, for both GitHub and the site.
func anchors(page string) map[string]bool {
	out := make(map[string]bool)
	fenced := false
	odd, hyphens := regexp.MustCompile(`[^\w\- ]`), regexp.MustCompile(`[- ]+`)
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		hashes, title, ok := strings.Cut(strings.TrimSpace(line), " ")
		if fenced || !ok || strings.Trim(hashes, "#") != "" {
			continue
		}
		name := strings.TrimSpace(odd.ReplaceAllString(strings.ToLower(title), ""))
		// If the forms differ, one link breaks.
		if github, site := strings.ReplaceAll(name, " ", "-"), hyphens.ReplaceAllString(name, "-"); github == site {
			out[site] = true
		}
	}
	return out
}

func TestEveryLinkOfThePagesLeadsSomewhere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`) // relative links: no scheme
	all := pages(t)
	n := map[bool]int{} // whether the link names a heading
	for name, page := range all {
		for _, m := range link.FindAllStringSubmatch(page, -1) {
			n[m[2] != ""]++
			target := name
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(name), m[1])
			}
			text, err := os.ReadFile(filepath.Join("../..", target))
			if info, statErr := os.Stat(filepath.Join("../..", target)); statErr == nil && info.IsDir() {
				err = nil
			}
			if err != nil {
				t.Errorf("%s: link to %s: %v", name, m[1], err)
			} else if m[2] != "" && !anchors(string(text))[m[2]] {
				t.Errorf("%s: link to %s#%s: the page has no such heading", name, m[1], m[2])
			}
		}
	}
	if n[false] < 50 || n[true] < 10 {
		t.Errorf("%d links to files and %d to headings found, want at least 50 and 10", n[false], n[true])
	}
}

func TestTheSiteListsEveryPage(t *testing.T) {
	t.Parallel()
	config, err := os.ReadFile("../../hack/site/hugo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name := range pages(t) {
		page, ok := strings.CutPrefix(strings.TrimSuffix(strings.TrimSuffix(name, ".md"), "/README"), "docs")
		if ok && !strings.Contains(string(config), "{page: "+page+",") {
			t.Errorf("hack/site/hugo.yaml does not list %s", page)
		}
	}
}

// The tables are made again from the code.
func TestThePageOnMeasuringSaysWhatIsRun(t *testing.T) {
	page := pages(t)["docs/measuring.md"]
	const port, gid = 65001, 77
	words := strings.NewReplacer(" "+strconv.Itoa(port), " PORT", " "+strconv.Itoa(gid)+" ", " GID ", "10.0.0.1",
		"ADDRESS", "-t 5 ", "-t SECONDS ")
	ep := bench.Endpoint{Node: "vm00", Addr: netip.MustParseAddr("10.0.0.1"), Device: "DEV", GIDIndex: gid}
	iterations := func(engine string, o bench.Options) int {
		t.Helper()
		e, err := tool.EngineByName(engine)
		if err != nil {
			t.Fatal(err)
		}
		args := e.Server(ep, o)
		n, err := strconv.Atoi(args[slices.Index(args, "-n")+1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, e := range tool.Engines() {
		o := bench.Options{Accelerator: "tcg", Port: port}
		server, client := strings.Join(e.Server(ep, o), " "), strings.Join(e.Client(ep, ep, o), " ")
		if e.Tool == "perftest" {
			server = strings.Replace(server, " -n "+strconv.Itoa(iterations(e.Name, o)), " -n N", 1)
			if e.Name != "ib_atomic_lat" {
				server = strings.Replace(server, e.Name, "ENGINE", 1)
			}
			client = "the same, with the server's address"
		} else {
			client = "`" + client + "`"
		}
		row := words.Replace("| `" + server + "` | " + client + " |")
		found := false
		for line := range strings.Lines(page) {
			found = found || strings.Contains(line, "`"+e.Name+"`") && strings.HasSuffix(strings.TrimSpace(line), row)
		}
		if !found {
			t.Errorf("no row of %s that ends with %s", e.Name, row)
		}
	}
	for name, costs := range map[string]string{"tcg": "`tcg` or unknown | 1 ms | 0.2 Gb/s",
		"kvm": "`kvm` | 0.1 ms | 5 Gb/s", bench.Nested: "any, in an emulated host | 15 ms | 0.03 Gb/s"} {
		o, quick := bench.Options{Accelerator: name}, bench.Options{Accelerator: name, Quick: true}
		row := fmt.Sprintf("| %s | %d | %d | %d, %d |\n", costs, iterations("ib_write_bw", o),
			iterations("ib_write_lat", o),
			iterations("ib_write_bw", quick), iterations("ib_write_lat", quick))
		if !strings.Contains(page, row) {
			t.Errorf("no row %s", row)
		}
	}
}
