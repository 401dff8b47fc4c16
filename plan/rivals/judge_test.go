package rivals

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/plan"
)

var judges = flag.Bool("judges", false, "hold the rules against the programs that they are of (hack/judges.sh)")

// ask gives a judge of hack/judges.sh a question as JSON and reads its answer.
func ask(t *testing.T, question, answer any, path string, args ...string) {
	t.Helper()
	data, err := json.Marshal(question)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(cache, "rackless", "judges", path), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(data), &out, &complaint
	cmd.Env = append(os.Environ(), "PYTHONWARNINGS=ignore", "PYTHONDONTWRITEBYTECODE=1")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", path, err, complaint.Bytes())
	}
	if err := json.Unmarshal(out.Bytes(), answer); err != nil {
		t.Fatal(err)
	}
}

// randomHost is a machine of 1 to 4 NUMA nodes with a lab that has no devices.
func randomHost(r *rand.Rand) *plan.Problem {
	m := machine{nodes: 1 + r.IntN(4), cores: 2 + r.IntN(6), threads: 1 + r.IntN(2), l3: 4, far: 20, pages: 64}
	m.packages = []int{1, m.nodes}[r.IntN(2)]
	p := m.problem()
	for i := range p.NUMANodes {
		p.NUMANodes[i].Pages = new(int64(4 + r.IntN(40)))
	}
	for i := range p.Cores {
		if r.IntN(8) == 0 {
			p.Cores[i].Tenant = "web"
		}
	}
	p.ReserveCores = r.IntN(4)
	for i := range 1 + r.IntN(6) {
		threads, cores := 1+r.IntN(m.threads), 1+r.IntN(m.cores*3/2)
		p.Requests = append(p.Requests, plan.Request{Name: fmt.Sprintf("vm%02d", i), VCPUs: cores * threads,
			Threads: threads, Cores: cores, Pages: int64(1 + r.IntN(24)), GuestNUMA: "auto"})
	}
	return p
}

// The host and the attempts as testdata/judge-nova.py reads them.
type novaHost struct {
	Pack     bool          `json:"pack"`
	Cells    []novaCell    `json:"cells"`
	Attempts []novaAttempt `json:"attempts"`
}

type novaCell struct {
	ID       int     `json:"id"`
	CPUs     []int   `json:"cpus"`
	Siblings [][]int `json:"siblings"`
	Pages    int64   `json:"pages"`
}

type novaAttempt struct {
	Policy string           `json:"policy"`
	Cells  []map[string]any `json:"cells"`
	Took   []novaTook       `json:"took"`
}

type novaTook struct {
	Cell  int   `json:"cell"`
	CPUs  []int `json:"cpus"`
	Idle  []int `json:"idle,omitempty"` // siblings that isolate leaves empty
	Pages int64 `json:"pages"`
}

// novaAttempts places a lab by our rules of Nova, and keeps what was tried.
func novaAttempts(p *plan.Problem, pack bool) novaHost {
	h := newHost(p)
	h.reserve(true)
	out := novaHost{Pack: pack, Attempts: []novaAttempt{}}
	for _, n := range h.nodes {
		cell := novaCell{ID: n, Pages: h.pages[n], CPUs: []int{}, Siblings: [][]int{}}
		for _, core := range p.Cores {
			if core.NUMANode == n && h.free(core.CPUs[0]) {
				cell.CPUs = append(cell.CPUs, core.CPUs...)
				cell.Siblings = append(cell.Siblings, core.CPUs)
			}
		}
		out.Cells = append(out.Cells, cell)
	}
	for i := range p.Requests {
		r := &p.Requests[i]
		for _, f := range h.flavors(r) {
			policy := "prefer"
			if r.Threads < h.threads() {
				policy = "isolate"
			}
			a := novaAttempt{Policy: policy}
			for _, c := range f.cells {
				a.Cells = append(a.Cells, map[string]any{"cpus": c.cores * r.Threads, "pages": c.pages})
			}
			cells, devices, ok := h.fit(i, f, pack)
			if ok {
				for g, cell := range cells {
					took := novaTook{Cell: cell, CPUs: h.novaPins(cell, f.cells[g].cores, r.Threads),
						Pages: f.cells[g].pages}
					for _, cpu := range took.CPUs {
						for _, sibling := range p.Cores[h.coreOf[cpu]].CPUs {
							if policy == "isolate" && sibling != cpu {
								took.Idle = append(took.Idle, sibling)
							}
						}
					}
					slices.Sort(took.CPUs)
					a.Took = append(a.Took, took)
				}
				h.claim(i, f, cells, devices)
			}
			out.Attempts = append(out.Attempts, a)
			if ok {
				break
			}
		}
	}
	return out
}

// onCores puts the first thread of a core in the place of each CPU. Which thread isolate takes follows from the order
// of a Python set; the others stay empty, so that it makes no difference.
func (h *novaHost) onCores(took []novaTook) {
	for i := range took {
		for k, cpu := range took[i].CPUs {
			for _, cell := range h.Cells {
				for _, siblings := range cell.Siblings {
					if slices.Contains(siblings, cpu) {
						took[i].CPUs[k] = siblings[0]
					}
				}
			}
		}
		slices.Sort(took[i].CPUs)
	}
}

// differences reads the table of docs/rivals.md: how often the judges find each difference that it decides, by name.
func differences(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(filepath.FromSlash("../../docs/rivals.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| [^|]+ \\| ([^|]+) \\| [^|]+ \\|$").
		FindAllStringSubmatch(string(data), -1) {
		rows[m[1]] = m[2]
	}
	return rows
}

// The differences that judges look for, each with what decides it in docs/rivals.md. Any other one fails the judge.
const (
	isolatedThread = "isolated-thread"
	missedFit      = "missed-fit"
	anyOfKubelet   = "kubelet"
)

func TestDifferencesAreDecided(t *testing.T) {
	t.Parallel()
	rows := differences(t)
	for _, name := range []string{isolatedThread, missedFit, anyOfKubelet} {
		if rows[name] == "" {
			t.Errorf("docs/rivals.md decides nothing on %s", name)
		}
		delete(rows, name)
	}
	for name := range rows {
		if rows[name] != "not judged" {
			t.Errorf("docs/rivals.md says how often %s is seen, and no judge looks for it", name)
		}
	}
}

// seen compares what a judge has counted with the page.
func seen(t *testing.T, name, count string) {
	t.Helper()
	if said := differences(t)[name]; said != count {
		t.Errorf("%s is seen in %s, docs/rivals.md says %s", name, count, said)
	}
}

// TestNovaDecidesTheSame holds the rules of Nova against its own numa_fit_instance_to_host, on hosts by chance.
func TestNovaDecidesTheSame(t *testing.T) {
	if !*judges {
		t.Skip("make test-judges installs Nova")
	}
	var hosts []novaHost
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 24))
		hosts = append(hosts, novaAttempts(randomHost(r), seed%2 == 1))
	}
	script, err := filepath.Abs("testdata/judge-nova.py")
	if err != nil {
		t.Fatal(err)
	}
	var said [][][]novaTook
	ask(t, hosts, &said, "nova/bin/python", script)
	fits, refused, missed, threads := 0, 0, 0, 0
	for k, h := range hosts {
		for i, a := range h.Attempts {
			var ours []novaTook
			for _, took := range a.Took {
				ours = append(ours, novaTook{Cell: took.Cell, CPUs: took.CPUs})
			}
			if ours == nil {
				refused++
			} else {
				fits++
			}
			if a.Policy == "isolate" {
				same := cmp.Equal(said[k][i], ours)
				h.onCores(said[k][i])
				h.onCores(ours)
				if !same && cmp.Equal(said[k][i], ours) {
					threads++
				}
			}
			if said[k][i] == nil && len(ours) > 2 {
				missed++
				continue
			}
			if diff := cmp.Diff(said[k][i], ours); diff != "" {
				data, _ := json.Marshal(h)
				t.Errorf("host %d, attempt %d (-Nova +rivals):\n%s%s", k, i, diff, data)
				break
			}
		}
	}
	seen(t, isolatedThread, fmt.Sprintf("%d of %d fits", threads, fits))
	seen(t, missedFit, fmt.Sprintf("%d of %d fits", missed, fits))
	t.Logf("%d fits and %d refusals on %d hosts", fits, refused, len(hosts))
}
