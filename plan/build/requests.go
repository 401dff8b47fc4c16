package build

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
)

// addRequests begins with explicit amounts, then shares the rest for "auto".
func (b *problemBuilder) addRequests() {
	for i := range b.lab.Nodes {
		n := &b.lab.Nodes[i]
		r := plan.Request{Name: n.Name, GuestNUMA: string(b.setting(n.Name, "guest_numa", n.GuestNUMA))}
		if b.lab.ShownNUMA(n) == lab.Off {
			r.GuestNUMA = string(lab.Off)
		}
		if n.Profile != "" {
			b.fail(n.Name, "profile",
				"%s is for emulated nodes, and %s has its own devices: leave it out, and ask for "+
					"nics and gpus, or run the lab with driver: qemu", n.Profile, b.name)
		} else {
			r.GPUs = b.wants(n.Name, "gpus", plan.KindGPU, n.GPURequests, n.GPUs)
			r.NICs = b.wants(n.Name, "nics", plan.KindNIC, n.NICRequests, len(n.NICs)-n.VFs)
			r.VFs = b.wants(n.Name, "vfs", plan.KindVF, n.VFRequests, n.VFs)
		}
		b.p.Requests = append(b.p.Requests, r)
	}
	b.addCPUs()
	b.addMemory()
}

// setting checks a Lab that did not come from the parser.
func (b *problemBuilder) setting(node, key string, s lab.Setting) lab.Setting {
	switch s {
	case lab.Auto, lab.On, lab.Off:
		return s
	case "":
		return lab.Auto
	}
	b.fail(node, key, "%q: want auto, on or off", string(s))
	return lab.Auto
}

type coreSupply struct {
	free int
	wide []int // cores with at least that many threads
}

func (s *coreSupply) widest() int { return powerBelow(len(s.wide) - 1) }

func (s *coreSupply) with(threads int) int {
	if threads < len(s.wide) {
		return s.wide[threads]
	}
	return 0
}

// powerBelow returns the largest power of two that is at most n, and 1 for smaller n.
func powerBelow(n int) int {
	return 1 << (bits.Len(uint(max(1, n))) - 1)
}

func (b *problemBuilder) supply() *coreSupply {
	s := &coreSupply{}
	for _, c := range b.freeCores() {
		s.free++
		for len(s.wide) <= len(c.CPUs) {
			s.wide = append(s.wide, 0)
		}
		for t := range len(c.CPUs) + 1 {
			s.wide[t]++
		}
	}
	return s
}

// addCPUs decides the number of virtual CPUs and cores of each lab node.
//
// Threads of a core go to one lab node, so two virtual CPUs share a core if the count is even. "smt: off" gives each a
// separate core. On a host with cores of different widths, wide ones are used only if there are enough.
//
// Nodes with "cpus: auto" get equal numbers of the remaining cores, rounded down. If the cores have different widths,
// each counts as one virtual CPU, unless the node requests "smt: on".
func (b *problemBuilder) addCPUs() {
	s := b.supply()
	left := s.free - b.p.ReserveCores
	var autos []int
	var odd group.By[int, string] // by number of virtual CPUs
	for i := range b.lab.Nodes {
		n, r := &b.lab.Nodes[i], &b.p.Requests[i]
		smt := b.setting(n.Name, "smt", n.SMT)
		if smt == lab.On && s.widest() < 2 {
			b.fail(n.Name, "smt", "on gives the lab node two threads of each core, and %s has cores of one thread "+
				"only: %s", b.name, b.threadsFix())
			continue
		}
		if n.AutoCPUs {
			autos = append(autos, i)
			continue
		}
		if n.CPUs < 1 {
			b.fail(n.Name, "cpus", "%d: want at least 1", n.CPUs)
			continue
		}
		if smt == lab.On && n.CPUs%2 != 0 {
			b.fail(n.Name, "smt", "on gives the lab node two threads of each core, and cpus is %d, which is odd: ask "+
				"for %d, or for smt: auto", n.CPUs, n.CPUs+1)
			continue
		}
		r.VCPUs, r.Threads = n.CPUs, 1
		if smt != lab.Off {
			r.Threads = threadsFor(s, n.CPUs, smt == lab.On, s.free-b.p.ReserveCores)
		}
		r.Cores = r.VCPUs / r.Threads
		if most := min(s.with(r.Threads), s.free-b.p.ReserveCores); r.Cores > most {
			b.fail(n.Name, "cpus", "%s", b.tooManyCPUs(s, r, most))
			continue
		}
		left -= r.Cores
		if smt != lab.Off && oddOnPairs(s, r) {
			odd.Add(n.CPUs, n.Name)
		}
	}
	for _, n := range odd.Keys {
		b.note("cpus of %s is odd, so that each virtual CPU has a core of its own, %d in all: %d would take %d cores, "+
			"two virtual CPUs on each", listText(odd.Of(n)), n, n+1, (n+1)/2)
	}
	b.shareCores(s, left, autos)
}

// oddOnPairs reports whether one virtual CPU more would halve the cores.
func oddOnPairs(s *coreSupply, r *plan.Request) bool {
	return r.VCPUs > 1 && r.VCPUs%2 != 0 && s.with(2) > r.VCPUs/2
}

// threadsFor returns the largest power of two that divides the number of virtual CPUs and that the widest cores have,
// or less if there are too few such cores and narrower ones suffice.
func threadsFor(s *coreSupply, vcpus int, atLeastTwo bool, most int) int {
	widest := 1
	for t := s.widest(); t > 1; t /= 2 {
		if vcpus%t != 0 {
			continue
		}
		if vcpus/t <= min(s.with(t), most) {
			return t
		}
		widest = max(widest, t)
	}
	if !atLeastTwo && vcpus <= min(s.with(1), most) {
		return 1
	}
	return widest
}

func (b *problemBuilder) tooManyCPUs(s *coreSupply, r *plan.Request, most int) string {
	text := fmt.Sprintf("%d need %s", r.VCPUs, words.Count(r.Cores, "core"))
	if r.Threads > 1 {
		text += fmt.Sprintf(" with %d threads each", r.Threads)
	}
	text += fmt.Sprintf(", and %s can give %d: it has %s", b.name, max(most, 0), b.coresThere(s.free))
	if wide := s.with(r.Threads); wide < s.free {
		text += fmt.Sprintf(", %d of them so wide", wide)
	}
	text += fmt.Sprintf(", and keeps %d for itself", b.p.ReserveCores)
	can := s.free - b.p.ReserveCores
	switch {
	case r.Threads == 1 && oddOnPairs(s, r) && (r.VCPUs+1)/2 <= min(s.with(2), can):
		text += fmt.Sprintf("; with smt: auto, %d take %d cores, two on each", r.VCPUs+1, (r.VCPUs+1)/2)
	case r.Threads > 1 && r.VCPUs <= min(s.with(1), can):
		text += "; with smt: off it can give as many"
	}
	return text
}

func (b *problemBuilder) threadsFix() string {
	if c := b.host.CPUs.SMT; c == "off" || c == "forceoff" {
		return "SMT is off on the host: turn it on (/sys/devices/system/cpu/smt/control, the firmware, or without " +
			"nosmt), or ask for smt: off"
	}
	return "ask for smt: auto or off"
}

// shareCores gives equal numbers, because labs compare lab nodes with each other.
func (b *problemBuilder) shareCores(s *coreSupply, left int, autos []int) {
	for _, i := range autos {
		n, r := &b.lab.Nodes[i], &b.p.Requests[i]
		r.Threads = s.widest()
		if same := s.with(r.Threads) == s.free; n.SMT == lab.Off || !same && n.SMT != lab.On {
			r.Threads = 1
		}
		// The other nodes would leave too few wide cores.
		r.Cores = min(left, s.with(r.Threads)) / len(autos)
		r.VCPUs = r.Cores * r.Threads
		if r.Cores < 1 {
			b.fail(n.Name, "cpus", "auto: no core is left: %s has %s, keeps %d for itself, the other lab nodes ask "+
				"for %d, and %s with cpus: auto share the rest", b.name, b.coresThere(s.free), b.p.ReserveCores,
				s.free-b.p.ReserveCores-left, words.Count(len(autos), "lab node"))
			r.Cores, r.VCPUs = 0, 0
		}
	}
}

// addMemory gives "memory: auto" equal shares of the remaining pages, in whole GiB if the share is at least one.
func (b *problemBuilder) addMemory() {
	m := b.memory()
	size, huge := b.choosePages()
	if size == pageBytes1GiB && b.lab.Hugepages != lab.Hugepages1GiB && b.autoPages(m, size) < 1 {
		size = pageBytes2MiB // less than 1 GiB is better than nothing
		if ok, why := b.canPages(size); !ok {
			huge = false
			b.note("no hugepages: %s", why)
		}
	}
	if huge {
		b.p.HugepageBytes = size
	}
	page := size
	for size = b.stepOf(page); size > page && b.autoPages(m, size) < stepsOfRequest; {
		size /= 2
	}
	b.p.PageBytes = size
	for at, pages := range m.pages(size) {
		b.p.NUMANodes[at].Pages = pages
	}
	there, known, all := totalPages(m.pages(size))
	auto := b.autoPages(m, size)
	var rounded group.By[lab.Bytes, string] // lab nodes by requested amount
	for i := range b.lab.Nodes {
		n, r := &b.lab.Nodes[i], &b.p.Requests[i]
		switch {
		case n.AutoMemory && !known:
			b.fail(n.Name, "memory", "auto needs to know the memory of the host, and %s does not tell it: give a size",
				b.name)
		case n.AutoMemory && auto < 1:
			b.fail(n.Name, "memory", "auto: nothing is left: %s, and the other lab nodes ask for %s",
				b.memoryThere(m, there), bytesText(b.explicitBytes(size)))
		case n.AutoMemory:
			r.Pages = auto
		case n.Memory < 1 || n.Memory > MaxHostMemory:
			b.fail(n.Name, "memory", "%d bytes: want at least 1 and at most %s", int64(n.Memory),
				lab.Bytes(MaxHostMemory))
		default:
			r.Pages = pagesFor(n.Memory, page) * int64(page) / int64(size)
			if r.Pages > there && all {
				b.fail(n.Name, "memory", "asks for %s: %s", n.Memory, b.memoryThere(m, there))
			}
			if uint64(n.Memory)%page != 0 {
				rounded.Add(n.Memory, n.Name)
			}
		}
	}
	for _, s := range rounded.Keys {
		b.note("memory of %s rounded up from %s to whole pages: %s", listText(rounded.Of(s)), s,
			bytesText(uint64(pagesFor(s, page))*page))
	}
}

// stepOf returns the unit for giving memory: the largest power of two of pages, up to 1 GiB, that divides every request
// and is small beside it. Large units keep weights meaningful and the search short. If the unit grew with the host,
// more memory could make a plan worse.
func (b *problemBuilder) stepOf(page uint64) uint64 {
	refuses := func(n lab.Node, step uint64) bool {
		asked := uint64(pagesFor(n.Memory, page)) * page
		return !n.AutoMemory && n.Memory > 0 && n.Memory <= MaxHostMemory &&
			(asked%step != 0 || asked < stepsOfRequest*step)
	}
	step := page
	for step < pageBytes1GiB && !slices.ContainsFunc(b.lab.Nodes, func(n lab.Node) bool { return refuses(n, 2*step) }) {
		step *= 2
	}
	return step
}

// stepsOfRequest is the minimum in a lab node's memory if steps are larger than pages.
const stepsOfRequest = 16

func pagesFor(memory lab.Bytes, size uint64) int64 { return int64((uint64(memory) + size - 1) / size) }

func bytesText(n uint64) string { return lab.Bytes(min(n, 1<<62)).String() }

func (b *problemBuilder) explicitBytes(size uint64) uint64 {
	return lists.Sum(b.lab.Nodes, func(n lab.Node) uint64 {
		if n.AutoMemory || n.Memory < 1 || n.Memory > MaxHostMemory {
			return 0
		}
		return uint64(pagesFor(n.Memory, size)) * size // at most 500 times 2^52
	})
}

// autoPages is the largest number without a "memory: auto".
func (b *problemBuilder) autoPages(m *memoryUse, size uint64) int64 {
	autos := int64(lists.Count(b.lab.Nodes, func(n lab.Node) bool { return n.AutoMemory }))
	if autos == 0 {
		return math.MaxInt64
	}
	there, _, _ := totalPages(m.pages(size))
	share := (there - int64(b.explicitBytes(size)/size)) / autos
	if whole := int64(pageBytes1GiB / size); share >= whole {
		share -= share % whole
	}
	return share
}

// totalPages also reports whether the number of any node is known, and of all.
func totalPages(pages []*int64) (sum int64, known, all bool) {
	all = true
	for _, p := range pages {
		if p == nil {
			all = false
			continue
		}
		known = true
		sum += *p
	}
	return sum, known, all
}

// memoryThere also names the uses of the rest, so that a reader sees which number to change.
func (b *problemBuilder) memoryThere(m *memoryUse, pages int64) string {
	keep, held := uint64(0), uint64(0)
	for at, v := range m.bytes {
		if v != nil && !m.unusable[at] {
			keep += min(m.reserve[at], *v)
			held += min(m.held[at], *v)
		}
	}
	text := fmt.Sprintf("%s can give %s: it has %s, keeps %s", b.name, bytesText(uint64(pages)*b.p.PageBytes),
		roundText(m.total()), roundText(keep))
	if held > 0 {
		text += ", other VMs hold " + roundText(held)
	}
	return text + fmt.Sprintf(", and counts in pages of %s", bytesText(b.p.PageBytes))
}

func roundText(n uint64) string {
	if n < pageBytes1GiB {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/pageBytes1GiB)
}

// numberClasses joins nodes with equal requests and without affinity, which can be swapped.
func (b *problemBuilder) numberClasses() {
	members := lists.Flat(b.p.Affinity, func(a plan.Affinity) []int { return a.Requests })
	tied := lists.SetOf(members, func(i int) int { return i })
	classes := map[string]int{}
	next := 0
	for i := range b.p.Requests {
		r := &b.p.Requests[i]
		same := *r
		same.Name, same.Class = "", 0
		same.GPUs, same.NICs, same.VFs = withoutText(r.GPUs), withoutText(r.NICs), withoutText(r.VFs)
		key, _ := json.Marshal(same) // cannot fail for numbers and strings
		number, known := classes[string(key)]
		if tied[i] || !known {
			number = next
			next++
		}
		if !tied[i] {
			classes[string(key)] = number
		}
		r.Class = number
	}
}

// withoutText helps because a count and a vendor may select the same devices.
func withoutText(wants []plan.Want) []plan.Want {
	return lists.Map(wants, func(w plan.Want) plan.Want {
		w.Text = ""
		return w
	})
}
