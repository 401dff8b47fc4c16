package tune

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/cmdline"
	"github.com/rackless/rackless/plan"
)

const kindPool = "hugepages"

// A Pool is a minimum of hugepages of one size on a NUMA node. It never lowers the number, because others may use the
// pages.
type Pool struct {
	NUMANode  int    `json:"numa_node"`
	PageBytes uint64 `json:"page_bytes"`
	Pages     uint64 `json:"pages"` // for the lab, plus pages already in use
	// Boot is set if kernel arguments set the pages aside at the next boot, should they not be available now.
	Boot bool `json:"boot,omitempty"`
}

const noPool change.State = "none"

// A MissingError is returned if a NUMA node cannot provide enough hugepages. Those found stay for the next try.
type MissingError struct {
	NUMANode   int
	PageBytes  uint64
	Have, Want uint64 // in pages; before a try, Have is an estimate
	Boot       bool
}

func (e *MissingError) Error() string {
	text := fmt.Sprintf("NUMA node %d has memory for %d of %d pages of %s, %d are missing: the rest of it is in use "+
		"or in pieces", e.NUMANode, e.Have, e.Want, words.Exact(e.PageBytes), e.Want-e.Have)
	if e.Boot {
		return text + "; the kernel arguments of the plan set them aside at boot: start the machine again, and " +
			"go on then"
	}
	return text + fmt.Sprintf("; stop what uses NUMA node %d and try again, or let the kernel arguments of the plan "+
		"set them aside at boot", e.NUMANode)
}

// NeedsReboot implements [change.RebootError].
func (e *MissingError) NeedsReboot() bool { return e.Boot }

// Kind implements [change.Op].
func (p *Pool) Kind() string { return kindPool }

// Subject implements [change.Op].
func (p *Pool) Subject() string { return p.dir() }

func (p *Pool) dir() string {
	return fmt.Sprintf("%shugepages/hugepages-%dkB", nodeDir(p.NUMANode), p.PageBytes>>10)
}

func nodeDir(node int) string { return fmt.Sprintf("/sys/devices/system/node/node%d/", node) }

// Read returns the number of pages.
func (p *Pool) Read(_ context.Context, s *change.System) (change.State, error) {
	text, err := s.ValueOr(p.dir()+"/nr_hugepages", string(noPool))
	return change.State(text), err
}

// Done implements [change.Op].
func (p *Pool) Done(state change.State) bool {
	n, err := strconv.ParseUint(string(state), 10, 64)
	return err == nil && n >= p.Pages
}

// poolTries is the number of requests to the kernel.
const poolTries = 3

// Do compacts memory between tries, because the kernel allocates as many pages as it can and reports no error, and
// compaction tries harder than an allocation. Do does not drop caches: the kernel reclaims clean page cache by itself,
// that does not free unmovable memory (slab, page tables), and every process would have to read its files again.
func (p *Pool) Do(_ context.Context, s *change.System) error {
	have, err := p.count(s)
	if err != nil {
		return err
	}
	for try := 0; have < p.Pages && try < poolTries; try++ {
		if try > 0 {
			if err := p.compact(s); err != nil {
				return err
			}
		}
		if err := s.WriteValue(p.dir()+"/nr_hugepages", strconv.FormatUint(p.Pages, 10)); err != nil {
			return err
		}
		if have, err = p.count(s); err != nil {
			return err
		}
	}
	if have < p.Pages {
		return &MissingError{p.NUMANode, p.PageBytes, have, p.Pages, p.Boot}
	}
	return nil
}

func (p *Pool) count(s *change.System) (uint64, error) {
	n, err := s.Number(p.dir() + "/nr_hugepages")
	if errors.Is(err, fs.ErrNotExist) {
		err = p.noPoolError()
	}
	return n, err
}

// Shell implements [change.Manual].
func (p *Pool) Shell() []string {
	file, pages := p.dir()+"/nr_hugepages", strconv.FormatUint(p.Pages, 10)
	return []string{
		fmt.Sprintf("[ \"$(cat %s)\" -ge %s ] || %s", file, pages, change.EchoTo(file, pages)),
		fmt.Sprintf("cat %s   # %s or more; if fewer: echo 1 > %scompact, and again", file, pages, nodeDir(p.NUMANode)),
	}
}

// RestoredLate is true for pages that kernel arguments set aside at each boot until they are undone.
func (p *Pool) RestoredLate() bool { return p.Boot }

func (p *Pool) noPoolError() error {
	return fmt.Errorf("NUMA node %d has no pool of pages of %s: boot with hugepagesz= of that size, and for 1 GiB on "+
		"x86 look for pdpe1gb in /proc/cpuinfo", p.NUMANode, words.Exact(p.PageBytes))
}

// A kernel without compaction has neither file.
func (p *Pool) compact(s *change.System) error {
	for _, file := range []string{nodeDir(p.NUMANode) + "compact", "/proc/sys/vm/compact_memory"} {
		if s.Exists(file) {
			return s.WriteValue(file, "1")
		}
	}
	return nil
}

// Restore does not try to remove pages in use: the kernel would turn them into surplus pages, and free each whenever
// its user releases it.
func (p *Pool) Restore(ctx context.Context, s *change.System, before change.State) error {
	now, err := p.Read(ctx, s)
	if err != nil || now == before || before == noPool {
		return err
	}
	want, err := strconv.ParseUint(string(before), 10, 64)
	if err != nil {
		return fmt.Errorf("state of %s: %w", p.dir(), err)
	}
	have, err := p.count(s)
	if err != nil || have < want || have > p.Pages { // in the last two cases somebody else set the number
		return err
	}
	if have > want {
		free, err := s.Number(p.dir() + "/free_hugepages")
		if err != nil {
			return err
		}
		if used := have - min(free, have); used > want {
			return fmt.Errorf("NUMA node %d has %d pages of %s, %d before, and %d are in use: stop the machines that "+
				"use them, and try again", p.NUMANode, have, words.Exact(p.PageBytes), want, used)
		}
	}
	if err := s.WriteValue(p.dir()+"/nr_hugepages", strconv.FormatUint(want, 10)); err != nil {
		return err
	}
	if have, err = p.count(s); err == nil && have != want {
		err = fmt.Errorf("NUMA node %d has %d pages of %s, %d before, and the kernel does not change that: try again "+
			"when less of its memory is in use", p.NUMANode, have, words.Exact(p.PageBytes), want)
	}
	return err
}

// Merge keeps a number that differs from Pages, because somebody else set it. If Do was cut off or the machine was
// booted since, numbers between Before and Pages are still the plan's: the kernel may have found fewer pages.
func (p *Pool) Merge(_ context.Context, _ *change.System, u change.Undo) (change.State, []change.Changed, error) {
	ours := u.Now == noPool || u.Now == change.State(strconv.FormatUint(p.Pages, 10))
	now, err1 := strconv.ParseUint(string(u.Now), 10, 64)
	before, err2 := strconv.ParseUint(string(u.Before), 10, 64)
	if u.Cut && err1 == nil && err2 == nil {
		ours = ours || before < now && now < p.Pages
	}
	return u.Whole(p, ours, change.Changed{What: p.dir() + "/nr_hugepages", Found: string(u.Now),
		Set: strconv.FormatUint(p.Pages, 10)})
}

// ready is false if a boot will set the pages aside and the node seems to have no room for them before.
func (p *Pool) ready(ctx context.Context, s *change.System) (bool, error) {
	if !p.Boot {
		return true, nil // the guard reports errors
	}
	if state, err := p.Read(ctx, s); err != nil || state == noPool {
		return false, err
	}
	missing, err := p.lacksRoom(s)
	return err == nil && missing == nil, err
}

// lacksRoom returns an error if the node's free memory and caches cannot hold the pages. Allocating them anyway would
// push out memory of programs.
func (p *Pool) lacksRoom(s *change.System) (*MissingError, error) {
	have, err := p.count(s)
	if err != nil || have >= p.Pages {
		return nil, err
	}
	m, err := readMeminfo(s, p.NUMANode)
	if err != nil {
		return nil, err
	}
	room := m.available - min(m.available, nodeKeep(m.total))
	if p.Pages-have <= room/p.PageBytes {
		return nil, nil
	}
	return &MissingError{p.NUMANode, p.PageBytes, have + room/p.PageBytes, p.Pages, p.Boot}, nil
}

func (p *Pool) guard(s *change.System) error {
	missing, err := p.lacksRoom(s)
	if err == nil && missing != nil {
		err = missing
	}
	return err
}

func poolsOf(p *plan.Plan) []*Pool {
	var pools []*Pool
	for _, h := range p.Hugepages {
		if h.PageBytes > 0 && h.Count+h.Held > 0 {
			pools = append(pools, &Pool{NUMANode: h.NUMANode, PageBytes: h.PageBytes, Pages: uint64(h.Count + h.Held)})
		}
	}
	return pools
}

func (v *view) pages() []change.Step {
	var steps []change.Step
	for _, p := range poolsOf(v.plan) {
		p.Boot = v.hasArg("hugepages")
		step := change.Step{
			Op: p,
			What: fmt.Sprintf("set aside %d pages of %s on NUMA node %d", p.Pages, words.Exact(p.PageBytes),
				p.NUMANode),
			Why: "the memory of the lab nodes is bound to NUMA nodes: pages on another one do not help, and the " +
				"machine would not start",
			Early:  true,
			Before: v.pagesBefore(p),
			Ready:  p.ready,
			Guard: func(_ context.Context, s *change.System) error {
				if err := GuardPages(s, v.plan); err != nil {
					return err
				}
				return p.guard(s)
			},
		}
		step.Risk = "no other program can use the memory, until a rollback"
		if p.Boot {
			step.Risk += "; if too few are found now, the kernel arguments set them aside at the next boot"
		}
		steps = append(steps, step)
	}
	return steps
}

// pagesBefore gives the number of pages when the plan was made, if a boot with the plan's arguments set the present
// pages aside. If the present number is not the plan's, somebody else set it, and the function returns false.
func (v *view) pagesBefore(p *Pool) func(context.Context, *change.System) (change.State, bool, error) {
	return func(_ context.Context, s *change.System) (change.State, bool, error) {
		if !p.Boot {
			return "", false, nil
		}
		line, err := s.Value("/proc/cmdline")
		if err != nil {
			return "", false, err
		}
		args := lists.Filter(v.plan.KernelArgs, func(arg string) bool { return strings.HasPrefix(arg, "hugepages") })
		now, err := p.count(s)
		was := v.pagesOf(p)
		return change.State(strconv.FormatUint(was, 10)), cmdline.Has(line, args) && now == p.Pages && was < now, err
	}
}

func (v *view) pagesOf(p *Pool) uint64 {
	node := v.host.NUMANode(p.NUMANode)
	if node == nil {
		return 0
	}
	pool := topology.Pool(node.Hugepages, p.PageBytes)
	if pool == nil {
		return 0
	}
	return pool.Total
}
