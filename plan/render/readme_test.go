package render

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
)

var mention = regexp.MustCompile(`(?:^|[\s(` + "`" +
	`])((?:kernel|firmware|tuned|domains|guests)/[A-Za-z0-9_./*-]*[A-Za-z0-9*])`)

func TestTheReadmeNamesFilesThatAreThere(t *testing.T) {
	t.Parallel()
	for _, c := range hostCases() {
		in := c.in(t)
		all := render(t, in)
		readme := string(all["README.md"].Data)
		named := map[string]bool{}
		for _, m := range mention.FindAllStringSubmatch(readme, -1) {
			pattern := strings.NewReplacer("NODE", in.Plan.Nodes[0].Name, "NAME", "*").Replace(m[1])
			found := false
			for name := range all {
				if ok, err := path.Match(pattern, name); err != nil {
					t.Fatal(err)
				} else if ok {
					found, named[name] = true, true
				}
			}
			if !found {
				t.Errorf("%s: the page names %s, which is not there", c.name, m[1])
			}
		}
		for name := range all {
			switch {
			case name == "README.md", name == "lab.yaml", strings.HasPrefix(name, "guests/"):
			case strings.Contains(readme, path.Base(name)), named[name]:
			default:
				t.Errorf("%s: nothing on the page leads to %s", c.name, name)
			}
		}
	}
}

func TestTheReadmeChecksWhatThePlanSays(t *testing.T) {
	t.Parallel()
	epyc := string(render(t, hostEPYC(t))["README.md"].Data)
	r740 := string(render(t, hostR740(t))["README.md"].Data)
	h20 := string(render(t, hostH20(t))["README.md"].Data)
	for _, tt := range []struct{ page, want string }{
		{epyc, "cat /sys/devices/system/cpu/isolated         # 2-29,34-61\n"},
		{epyc, "cat /sys/devices/system/node/node2/hugepages/hugepages-1048576kB/nr_hugepages   # 16 or more\n"},
		{epyc, "lspci -nnk -s 0000:06:00.1   # Kernel driver in use: vfio-pci\n"},
		{epyc, "    # 2 34 3 35 4 36 5 37 6 38 7 39 16 48 17 49 18 50 19 51 20 52 21 53 22 54 23 55\n"},
		{epyc, "available: 2 nodes (0-1); node 0: CPUs 0 to 11, 16384 MB; node 1: CPUs 12 to 27, 16384 MB"},
		{epyc, "numactl -N 1 -m 1 ib_write_bw"},
		{epyc, "BW average: 24 Gb/s or more"},
		{r740, "virsh vcpupin 'build server' 1 0-1,46-49,94-95 --config\n"},
		{r740, "readlink /sys/bus/pci/devices/0000:3b:00.0/virtfn3   # ../0000:3b:00.5, of vm\n"},
		{r740, "there is nothing to measure against"},
		{h20, "BW average: 192 Gb/s or more, 96% of the slowest link of the lab (200 Gb/s)"},
	} {
		if !strings.Contains(tt.page, tt.want) {
			t.Errorf("no %q in\n%s", tt.want, tt.page)
		}
	}
}

// The command that lists files for the way back must find each file below /etc.
func TestTheWayBackRemovesEachFile(t *testing.T) {
	t.Parallel()
	sh := findProgram(t, "sh")
	for _, c := range hostCases() {
		all := render(t, c.in(t))
		lines, _ := commands(string(all["README.md"].Data), "sed")
		if len(lines) != 1 || !strings.HasSuffix(lines[0], " commands.txt | xargs rm -f") {
			t.Fatalf("%s: commands %q", c.name, lines)
		}
		cmd := exec.Command(sh, "-c", strings.TrimSuffix(lines[0], " commands.txt | xargs rm -f"))
		cmd.Stdin = bytes.NewReader(all["commands.txt"].Data)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		files := strings.Fields(string(out))
		if n := bytes.Count(all["commands.txt"].Data, []byte("<<'EOF'\n")); n < 3 || n != len(files) {
			t.Errorf("%s: %d files are written, and these removed: %q", c.name, n, files)
		}
		for _, file := range files {
			if !strings.HasPrefix(file, "/etc/") {
				t.Errorf("%s: %s is removed", c.name, file)
			}
		}
	}
}

func TestAPlanThatIsNotProvedSaysSo(t *testing.T) {
	t.Parallel()
	in := hostEPYC(t)
	in.Plan.Optimal, in.Plan.Bound, in.Plan.Stopped, in.Plan.Notes = false, 1000, "time limit 2s",
		[]string{"distances of 20"}
	page := string(render(t, in)["README.md"].Data)
	for _, want := range []string{"the search stopped early (time limit 2s); none scores below 1000",
		"- Note: distances of 20\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}

func TestALabWithoutDevicesNeedsLittle(t *testing.T) {
	t.Parallel()
	h := dualSocket(8)
	in := withLab(t, input("plain", "plain", h, shape{
		name: "vm", threads: 2, flat: true, house: []int{0}, nics: 1,
		cells: [][]home{{{0, siblings(1, 2, 16), 4 * gib}}},
	}), "name: plain\nnodes:\n  vm: {cpus: 4, memory: 4GiB}\n")
	all := render(t, in)
	for _, name := range []string{"README.md", "commands.txt"} {
		if page := string(all[name].Data); strings.Contains(page, "vfio") || strings.Contains(page, "mstconfig") {
			t.Errorf("%s speaks of devices:\n%s", name, page)
		}
	}
}

func TestTheHostMayKeepNothing(t *testing.T) {
	t.Parallel()
	in := hostEPYC(t)
	in.Plan.Housekeeping.CPUs = topology.CPUSet{}
	in.Plan.Nodes[0].EmulatorCPUs, in.Plan.Nodes[0].IOThreadCPUs = topology.CPUSet{}, topology.CPUSet{}
	v, err := newView(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range v.checks() {
		if c.Title == "CPU sets" || c.Title == "Interrupts" {
			t.Errorf("%s without a CPU to go to", c.Title)
		}
	}
	if page := string(v.readme()); !strings.Contains(page, "| the host | | none |") {
		t.Errorf("the page says\n%s", page)
	}
}

func commands(page string, words ...string) (lines, after []string) {
	all := strings.Split(page, "\n")
	for i, line := range all {
		line, code := strings.CutPrefix(line, "    ")
		if first, _, _ := strings.Cut(line, " "); !code || !slices.Contains(words, first) {
			continue
		}
		lines = append(lines, line)
		next := ""
		if i+1 < len(all) {
			next, _ = strings.CutPrefix(strings.TrimSpace(all[i+1]), "# ")
		}
		after = append(after, next)
	}
	return lines, after
}

func below(list string, limit int) string {
	separator := " "
	if strings.Contains(list, ",") {
		separator = ","
	}
	var kept []string
	for word := range strings.SplitSeq(list, separator) {
		if n, err := strconv.Atoi(word); err == nil && n < limit {
			kept = append(kept, word)
		}
	}
	return strings.Join(kept, separator)
}

func TestCommandsOfTheReadmeWorkOnLibvirt(t *testing.T) {
	t.Parallel()
	d := startLibvirt(t)
	in := hostEPYC(t)
	all := render(t, in)
	page := string(all["README.md"].Data)
	if err := os.Mkdir(filepath.Join(d.Dir, "domains"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, n := range in.Plan.Nodes {
		data := all[DomainPath(n.Name)].Data
		if !d.kvm {
			data = emulated(data)
		}
		if err := os.WriteFile(filepath.Join(d.Dir, filepath.FromSlash(DomainPath(n.Name))), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cpus, err := d.Virsh("nodecpumap")
	if err != nil {
		t.Fatal(err)
	}
	present, err := strconv.Atoi(strings.Fields(strings.TrimPrefix(cpus, "CPUs present:"))[0])
	if err != nil {
		t.Fatalf("%v: %s", err, cpus)
	}
	lines, want := commands(page, "virsh")
	ran := map[string]int{}
	for i, line := range lines {
		verb := strings.Fields(line)[1]
		switch verb {
		case "define", "attach-disk", "vcpupin", "emulatorpin":
		default:
			continue // these need a running guest, or a network
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		out, err := d.Command(ctx, "sh", "-c", "virsh() { command virsh -c "+words.Quote(d.URI)+" \"$@\"; }\n"+
			line).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		// libvirt shows only CPUs that this machine has, in maps of whole bytes.
		if got, want := strings.TrimSpace(string(out)), below(want[i], (present+7)/8*8); strings.HasSuffix(verb,
			"pin") && got != want {
			t.Errorf("%s\nprints %s\nthe page says %s", line, got, want)
		}
		ran[verb]++
	}
	if diff := cmp.Diff(map[string]int{"define": 2, "attach-disk": 2, "vcpupin": 2, "emulatorpin": 2},
		ran); diff != "" {
		t.Error(diff)
	}
	for _, n := range in.Plan.Nodes {
		name := lab.VMName(in.Plan.Lab, n.Name)
		xml, err := d.Virsh("dumpxml", "--inactive", name)
		if err != nil || !strings.Contains(xml, "device='cdrom'") {
			t.Errorf("no cdrom in %s: %v", name, err)
		}
		if _, err := d.Virsh("undefine", "--nvram", name); err != nil {
			t.Error(err)
		}
	}
}
