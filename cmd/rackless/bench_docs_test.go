package main

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
)

// The commands are made again from the code.
func TestThePageOnMeasuringHasTheEnginesOfTheSuites(t *testing.T) {
	page := pages(t)["docs/measuring.md"]
	ep := bench.Endpoint{Node: "vm00", Addr: netip.MustParseAddr("10.0.0.1"), Device: "DEV", GIDIndex: 77}
	o := bench.Options{Accelerator: "tcg", Port: 65001, Threads: 99}
	words := strings.NewReplacer("=77 ", "=GID ", " 77 ", " GID ", "65001", "PORT", "10.0.0.1,10.0.0.1",
		"CLIENT,SERVER", "10.0.0.1", "ADDRESS", "--time=5", "--time=SECONDS", "-t 6", "-t SECONDS",
		"--threads=99", "--threads=CPUS", "--stream 99", "--stream CPUS", "-g 99", "-g GPUS", "-mmt99", "-mmtCPUS",
		"-t 1 128", "-t MIB 128")
	numbers := regexp.MustCompile(` (-n|-I) \d+`)
	warm := regexp.MustCompile(` -w \d+`)
	size := regexp.MustCompile(`l3-size \d+M`)
	mpi := regexp.MustCompile(
		`^env HOME\S+ OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 I_MPI_PERHOST=1 ` +
			`(.* -m )\d+:\d+ -i \d+ -x \d+`)
	sizes := regexp.MustCompile(`^((?:osu|gloo)_\w+ -m )\d+:\d+ -i \d+ -x \d+$`)
	log := regexp.MustCompile(`-md\d+`)
	counts := regexp.MustCompile(`-b \d+ -e \d+ -n N -w N/10$`)
	path := regexp.MustCompile(`/usr/local/bin/(rackless-(?:nixl|vram))-\w+`)
	text := func(argv []string) string {
		s := log.ReplaceAllString(mpi.ReplaceAllString(words.Replace(strings.Join(argv, " ")), "${1}SIZES"), "-mdLOG")
		s = path.ReplaceAllString(sizes.ReplaceAllString(s, "${1}SIZES"), "$1")
		s = size.ReplaceAllString(warm.ReplaceAllString(numbers.ReplaceAllString(s, " $1 N"), " -w N/10"),
			"l3-size SIZE")
		return counts.ReplaceAllString(s, "-b FIRST -e LAST -n N -w N/10")
	}
	plain := make(map[string]bool)
	for _, e := range tool.Engines() {
		plain[e.Name] = true
	}
	joined := regexp.MustCompile(` \\\n +`).ReplaceAllString(page, " ")
	n := 0
	for _, e := range tool.Catalogue() {
		if plain[e.Name] {
			continue
		}
		n++
		client := text(e.Client(ep, ep, o))
		shown := "| `" + e.Suite + "` | `" + e.Name + "` | `" + client + "` |\n"
		if argv := e.Server(ep, o); argv != nil {
			server := text(argv)
			shown = "    # " + e.Name + ": the server\n    " + server + "\n    # " + e.Name + ": the client\n    " +
				client + "\n"
			if client == server+" ADDRESS" {
				shown = "    # " + e.Name + ": the server; the client adds ADDRESS\n    " + server + "\n"
			}
		}
		if !strings.Contains(joined, shown) {
			t.Errorf("the page lacks\n%s", shown)
		}
		for _, m := range e.Metrics() {
			if !strings.Contains(page, "`"+m+"`") {
				t.Errorf("%s: the page does not explain %s", e.Name, m)
			}
		}
	}
	if n < 9 {
		t.Errorf("%d engines beyond those run by default, want at least 9", n)
	}
}
