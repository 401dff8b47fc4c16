package adopt_test

import (
	gocmp "cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/synthetic"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/rack/adopt"
)

func domain(name string, vcpus, gib int, elements ...string) string {
	return fmt.Sprintf("<domain type='kvm'>\n  <name>%s</name>\n  <memory unit='GiB'>%d</memory>\n  "+
		"<vcpu>%d</vcpu>\n  %s\n"+
		"</domain>\n", name, gib, vcpus, strings.Join(elements, "\n  "))
}

func pins(rest string, cpus ...int) string {
	var b strings.Builder
	b.WriteString("<cputune>\n")
	for v, cpu := range cpus {
		fmt.Fprintf(&b, "    <vcpupin vcpu='%d' cpuset='%d'/>\n", v, cpu)
	}
	if rest != "" {
		b.WriteString("    " + rest + "\n")
	}
	return b.String() + "  </cputune>"
}

func plugged(text string, vcpus int) string {
	return strings.Replace(text, "<vcpu>", fmt.Sprintf("<vcpu current='%d'>", vcpus), 1)
}

const twoNodes = "pack:2 [numa(memory=64GiB)] core:8 pu:2"

const (
	emulator = "<emulatorpin cpuset='0-1'/>"
	threads  = "<cpu mode='host-passthrough'><topology sockets='1' cores='2' threads='2'/></cpu>"
	snapshot = "../../machine/diagnose/testdata/cases/"
)

// machines are tested with their hosts: a snapshot that includes the domain, a machine in one line of text, or "".
// wrong are the failing checks, left the checks that no edit mends, and after, if different, the failing ones of the
// mended machine.
var machines = []struct{ name, text, beside, host, wrong, left, after string }{
	{name: "vm-a", host: snapshot + "siblings-torn.tar.gz", wrong: "RL066"},
	{name: "gpu-vm", host: snapshot + "flat-guest.tar.gz", wrong: "RL037 RL067 RL077", left: "RL037 RL077",
		after: "RL037 RL077 RL087"},
	{name: "../../machine/inspect/testdata/devices/libvirt/insights-rhel_7_4_xml.xml", host: twoNodes},
	{name: "../../machine/inspect/testdata/devices/libvirt/insights-xml_rhosp.xml",
		host: "numa:2 core:12 pu:1", wrong: "RL064"},
	{name: "../../machine/inspect/testdata/devices/libvirt/insights-xml_numa.xml",
		host: "numa:2 core:3 pu:1", wrong: "RL064"},
	{name: "../../machine/inspect/testdata/devices/libvirt/insights-xml_numa.xml", wrong: "RL064", left: "RL064"},

	{name: "right", host: twoNodes, text: domain("vm", 4, 4, pins(emulator, 2, 3, 4, 5), threads)},
	{name: "right, floating", host: twoNodes, text: domain("vm", 4, 4, threads)},
	{name: "right, on both nodes with cells", host: twoNodes, text: domain("vm", 4, 4, pins("<emulatorpin "+
		"cpuset='0,16'/>",
		2, 3, 18, 19), "<numatune><memory mode='strict' nodeset='0-1'/></numatune>", "<cpu><numa><cell id='0' "+
		"cpus='0-1' "+
		"memory='2' unit='GiB'/><cell id='1' cpus='2-3' memory='2' unit='GiB'/></numa><topology sockets='2' cores='1' "+
		"threads='2'/></cpu>")},
	{name: "emulator not pinned", host: twoNodes, text: domain("vm", 4, 4, pins("", 2, 3, 4, 5), threads),
		wrong: "RL064"},
	{name: "emulator on its own CPUs", host: twoNodes, text: domain("vm", 4, 4,
		pins("<emulatorpin cpuset='2-5'/>", 2, 3, 4, 5), threads), wrong: "RL064"},
	{name: "siblings torn", host: twoNodes, text: domain("vm", 4, 4, pins(emulator, 2, 4, 3, 5), threads),
		wrong: "RL066"},
	{name: "siblings torn, no whole cores", host: twoNodes, text: domain("vm", 4, 4, pins(emulator, 2, 4, 6, 8),
		threads),
		wrong: "RL066"},
	{name: "pins on CPUs that are not there", host: twoNodes, text: domain("vm", 2, 4, pins(emulator, 30, 99)),
		wrong: "RL062"},
	{name: "one virtual CPU without a pin", host: twoNodes, text: domain("vm", 3, 4, pins(emulator, 2, 3)),
		wrong: "RL063"},
	{name: "memory on the other node", host: twoNodes, text: domain("vm", 2, 4, pins(emulator, 2, 3),
		"<numatune><memory mode='strict' nodeset='1'/></numatune>"), wrong: "RL071"},
	{name: "memory on a node that is not there", host: twoNodes, text: domain("vm", 2, 4, pins(emulator, 2, 3),
		"<numatune><memory mode='strict' nodeset='3'/></numatune>"), wrong: "RL070 RL071"},
	{name: "more memory than its node has", host: twoNodes, text: domain("vm", 2, 90, pins(emulator, 2, 3),
		"<numatune><memory mode='strict' nodeset='0'/></numatune>"), wrong: "RL070"},
	{name: "more memory than the host has", host: twoNodes, text: domain("vm", 2, 900, pins(emulator, 2, 3),
		"<numatune><memory mode='strict' nodeset='0'/></numatune>"), wrong: "RL070", left: "RL070"},
	{name: "on all CPUs that are isolated", host: epyc, text: domain("vm", 56, 16, pins("", 0, 0),
		strings.Replace(threads, "cores='2'", "cores='28'", 1)),
		wrong: "RL063 RL064 RL068"},
	{name: "on both nodes and sees one", host: twoNodes, text: domain("vm", 4, 4, pins(emulator, 2, 3, 18, 19),
		threads),
		wrong: "RL067"},
	{name: "pinned to siblings that the guest does not see, as a guide says", host: epyc, text: domain("vm", 28, 32,
		"<memoryBacking><hugepages/></memoryBacking>", pins("<emulatorpin "+
			"cpuset='2-7,16-23,34-39,48-55'/>", 2, 3, 4, 5, 6,
			7, 34, 35, 36, 37, 38, 39, 16, 17, 18, 19, 20, 21, 22, 23, 48, 49, 50, 51, 52, 53, 54, 55),
		"<numatune><memory mode='strict' nodeset='0,2'/></numatune>"), wrong: "RL061 RL064 RL067 RL069",
		after: "none"},
	{name: "of a plan, before the host is booted for it", host: epyc, text: domain("vm", 4, 4, "<metadata><r:node "+
		"xmlns:r='https://github.com/rackless/rackless/libvirt/1' lab='l' name='vm' plan='rackless/plan/v1' "+
		"isolated='2-5,34-37'/></metadata>", pins("<emulatorpin cpuset='6,38'/>", 2, 34, 3, 35), threads)},
	{name: "on the CPUs of another", host: twoNodes, text: domain("vm", 2, 4, pins(emulator, 4, 5)),
		beside: domain("other", 2, 4, pins(emulator, 4, 5)), wrong: "RL060"},
	{name: "on the cores of another", host: twoNodes, text: domain("vm", 2, 4, pins(emulator, 4, 6)),
		beside: domain("other", 2, 4, pins(emulator, 5, 7)), wrong: "RL065"},
	{name: "what it was is no other", host: twoNodes, text: domain("vm", 2, 4, pins(emulator, 4, 5)),
		beside: domain("vm", 2, 4, pins(emulator, 4, 5))},
	{name: "Proxmox on both nodes with memory on one", host: twoNodes, text: "name: vm\ncores: 4\nmemory: 4096\n" +
		"ostype: l26\nnuma: 1\naffinity: 2-5\nnuma0: cpus=0-3,hostnodes=5,memory=4096,policy=bind\n" +
		"scsihw: virtio-scsi-single\n", wrong: "RL070 RL071"},
	{name: "Proxmox with CRLF", host: twoNodes, text: "name: vm\r\ncores: 4\r\nmemory: 4096\r\nostype: l26\r\n" +
		"affinity: 2-3\r\nscsihw: virtio-scsi-single\r\n\r\n[before]\r\ncores: 2\r\n", wrong: "RL068"},
	{name: "Proxmox with more to plug in than the host has", host: twoNodes, text: "name: vm\ncores: 40\nvcpus: 6\n" +
		"memory: 4096\nnuma: 1\nnuma0: cpus=0-39,hostnodes=5,memory=4096,policy=bind", wrong: "RL070"},
	{name: "less memory than a node of a lab", host: twoNodes, text: strings.Replace(domain("vm", 3, 214, pins(emulator,
		2, 3)), "'GiB'", "'MiB'", 1), wrong: "RL063"},
	{name: "memory of no whole pages", host: twoNodes, text: strings.Replace(domain("vm", 3, 4097, pins(emulator, 2, 3),
		"<memoryBacking><hugepages><page size='2' unit='MiB'/></hugepages></memoryBacking>"), "'GiB'", "'MiB'", 1),
		wrong: "RL063", left: "RL063"},
	{name: "virsh vcpuinfo", host: twoNodes, text: "VCPU:           0\nCPU:            2\nState:          running\n" +
		"CPU time:       7.0s\nCPU Affinity:   ---------------------------------------------------------------y\n",
		wrong: "RL062 RL064", left: "RL062 RL064"},
	{name: "CRLF", host: twoNodes, text: strings.ReplaceAll(domain("vm", 2, 4, pins(emulator, 2, 3),
		"<numatune><memory mode='strict' nodeset='1'/></numatune>"), "\n", "\r\n"), wrong: "RL071"},
	{name: "oVirt with more to plug in than the host has", host: twoNodes, text: plugged(domain("vm", 40, 4,
		pins("", 2, 4, 5, 18), threads), 4), wrong: "RL063 RL064 RL066 RL067"},
	{name: "oVirt with a cell", host: twoNodes, text: plugged(domain("vm", 40, 4, "<cpu><topology sockets='10' "+
		"cores='2' threads='2'/><numa><cell id='0' cpus='0-39' memory='4' unit='GiB'/></numa></cpu>",
		"<numatune><memory mode='strict' nodeset='5'/></numatune>"), 4), wrong: "RL070"},
}

func hostOf(t testing.TB, name string) *topology.Host {
	t.Helper()
	if name == "" {
		return adopt.Nowhere()
	}
	if strings.Contains(name, ":") {
		h, err := synthetic.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h, err := inspect.ReadFile(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func read(t *testing.T, name, text, beside, host string) (*inspect.Machine, *topology.Host) {
	t.Helper()
	h := hostOf(t, host)
	if beside != "" {
		other, err := inspect.ParseMachine(t.Context(), beside, "other.xml")
		if err != nil {
			t.Fatal(err)
		}
		h.Tenants = append(h.Tenants, other.Tenant)
	}
	m, err := inspect.ParseMachine(t.Context(), text, "vm.xml")
	if text == "" {
		if strings.Contains(host, ":") {
			host = ""
		}
		m, err = inspect.ReadMachine(t.Context(), name, host, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m, h
}

func TestMachinesTogetherFitTogether(t *testing.T) {
	t.Parallel()
	h, err := synthetic.Host(twoNodes)
	if err != nil {
		t.Fatal(err)
	}
	var machines []*inspect.Machine
	for _, file := range []string{"100.conf", "101.conf"} {
		m, err := inspect.ParseMachine(t.Context(), "cores: 4\nmemory: 4096\naffinity: 2-5\n", file)
		if err != nil {
			t.Fatal(err)
		}
		machines = append(machines, m)
	}
	verdicts, err := adopt.CheckAll(t.Context(), h, "host", machines)
	if err != nil {
		t.Fatal(err)
	}
	first, second := verdicts[0], verdicts[1]
	if !slices.Equal(first.Fixed, []string{"RL060"}) || first.Machine != "100" {
		t.Errorf("%s: mended %v, want RL060 of 100", first.Machine, first.Fixed)
	}
	if len(second.Findings) > 0 {
		t.Errorf("%s: %v, want nothing: the first makes way for it", second.Machine, second.Findings)
	}
}

func TestMachines(t *testing.T) {
	t.Parallel()
	for _, c := range machines {
		title := strings.ReplaceAll(filepath.Base(c.name), " ", "-")
		if c.host == "" {
			title += "-alone"
		}
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			m, h := read(t, c.name, c.text, c.beside, c.host)
			v, err := adopt.Check(t.Context(), h, "host", m)
			if err != nil {
				t.Fatal(err)
			}
			if got := checks(v); got != c.wrong {
				t.Errorf("finds %q, want %q: %+v", got, c.wrong, v.Findings)
			}
			var left []string
			for _, id := range strings.Fields(c.wrong) {
				if !slices.Contains(v.Fixed, id) {
					left = append(left, id)
				}
			}
			if got := strings.Join(left, " "); got != c.left {
				t.Errorf("leaves %q, want %q: %s", got, c.left, v.NotFixed)
			}
			if v.Diff == "" {
				return
			}
			golden.Check(t, filepath.Join("testdata", title+".diff"), v.Diff)
			mended, err := inspect.ParseMachine(t.Context(), patched(t, m, v.Diff), m.File)
			if err != nil {
				t.Fatal(err)
			}
			again, err := adopt.Check(t.Context(), h, "host", mended)
			if err != nil {
				t.Fatal(err)
			}
			if want, got := gocmp.Or(c.after, c.left), gocmp.Or(checks(again), "none"); got != gocmp.Or(want, "none") {
				t.Errorf("the mended machine has %q, want %q: %+v", got, want, again.Findings)
			}
		})
	}
}

func checks(v *adopt.Verdict) string {
	var ids []string
	for _, f := range v.Findings {
		if !slices.Contains(ids, f.ID) {
			ids = append(ids, f.ID)
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

func patched(t testing.TB, m *inspect.Machine, diff string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "machine")
	if err := os.WriteFile(file, []byte(m.Text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("patch", "--quiet", file)
	cmd.Stdin = strings.NewReader(diff)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("patch: %v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var corpus = flag.String("corpus", "", "print what is found of each description in this `DIR`")

func TestCorpus(t *testing.T) {
	if *corpus == "" {
		t.Skip("no -corpus")
	}
	files, err := filepath.Glob(filepath.Join(*corpus, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		m, err := inspect.ReadMachine(t.Context(), file, "", nil)
		if err != nil {
			fmt.Printf("%s: %v\n", filepath.Base(file), err)
			continue
		}
		v, err := adopt.Check(t.Context(), adopt.Nowhere(), "none", m)
		if err != nil {
			t.Error(err)
			continue
		}
		fmt.Printf("%s: %s\n", filepath.Base(file), checks(v))
		for _, f := range v.Findings {
			fmt.Printf("    %s %s: %s\n", f.ID, f.Severity, f.Evidence)
		}
	}
}
