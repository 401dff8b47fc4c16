package inspect

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// Source: Documentation/ABI/stable/sysfs-devices-system-cpu, Documentation/admin-guide/cputopology.rst.
const cpuDir = "sys/devices/system/cpu"

func cpuPath(cpu int, file string) string { return cpuDir + "/cpu" + strconv.Itoa(cpu) + "/" + file }

// readCPUs ignores the cpuset of this process: CPUs of other processes also count.
func (r *reader) readCPUs() {
	dirs := r.numbered(cpuDir, "cpu")
	c := &r.h.CPUs
	c.Present = r.list(cpuDir + "/present")
	if c.Present == nil && len(dirs) > 0 {
		c.Present = new(topology.CPUs(dirs...))
	}
	c.Online = r.onlineCPUs(dirs)
	c.Isolated = r.list(cpuDir + "/isolated")
	c.NoHzFull = r.list(cpuDir + "/nohz_full")
	c.SMT = r.word(cpuDir + "/smt/control")
	arch := r.h.System.Arch
	t := cpuTopology{r: r, x86: arch == "x86_64" || strings.HasPrefix(arch, "i") && strings.HasSuffix(arch, "86")}
	t.read(c.Online)
	if len(r.h.Cores) == 0 && len(r.h.Packages) == 0 {
		r.coresFromCPUInfo()
	}
	if c.Present != nil {
		// The kernel's list of offline CPUs also has CPUs that could be hot-plugged.
		c.Offline = new(c.Present.Difference(c.Online))
	}
	for i := range r.h.Packages {
		// A kernel runs only if all packages are of one model.
		r.h.Packages[i].Model = r.h.System.CPUModel
	}
	r.readCoreKinds()
	r.placeNodes()
}

// onlineCPUs looks among dirs, the CPUs with a directory.
func (r *reader) onlineCPUs(dirs []int) topology.CPUSet {
	const p = cpuDir + "/online"
	there := topology.CPUs(dirs...)
	if list := r.list(p); list != nil && !list.IsEmpty() {
		if len(dirs) == 0 {
			return *list
		}
		if gone := list.Difference(there); !gone.IsEmpty() {
			r.unread(p, "CPUs "+gone.String()+" have no directory")
		}
		return list.Intersect(there)
	}
	// Kernels before 2.6.29 have a file in each CPU that can be taken offline. Such a CPU also loses its topology.
	var online, withTopology []int
	for _, cpu := range dirs {
		if on := r.flag(cpuPath(cpu, "online")); on != nil && !*on {
			continue
		}
		online = append(online, cpu)
		if r.exists(cpuPath(cpu, "topology")) {
			withTopology = append(withTopology, cpu)
		}
	}
	if len(withTopology) > 0 {
		online = withTopology
	}
	return topology.CPUs(online...)
}

// A cpuTopology reads a file that several CPUs share only once: with 256 CPUs that is a tenth of the files.
type cpuTopology struct {
	r      *reader
	x86    bool
	online topology.CPUSet

	threads  fileOf // CPUs of the same core
	siblings fileOf // CPUs of the same package
	dies     fileOf
	caches   fileOf

	fixedFrequency bool  // no cpufreq
	apart          *bool // see coresInside
	inL3           topology.CPUSet
	inPkg          topology.CPUSet
	byID           map[int]int
}

// A fileOf reads a set of CPUs from the first of several files that exists: a mask (since 2.6.16) or a list. The last
// successful name is tried first.
type fileOf struct {
	names []string
	known int // the last successful name
}

// read returns the online CPUs, or nil without a file.
func (f *fileOf) read(t *cpuTopology, dir string) *topology.CPUSet {
	for i := range f.names {
		at := (f.known + i) % len(f.names)
		if set := t.r.cpus(dir, f.names[at]); set != nil {
			f.known = at
			return new(set.Intersect(t.online))
		}
	}
	return nil
}

func (t *cpuTopology) read(online topology.CPUSet) {
	t.online, t.byID = online, map[int]int{}
	// 5.3 added more precise names.
	t.threads.names = []string{"core_cpus", "thread_siblings", "core_cpus_list", "thread_siblings_list"}
	t.siblings.names = []string{"package_cpus", "core_siblings", "package_cpus_list", "core_siblings_list"}
	t.dies.names = []string{"die_cpus", "die_cpus_list"}
	t.caches.names = []string{"shared_cpu_map", "shared_cpu_list"}
	var done topology.CPUSet
	for cpu := range online.All() {
		if done.Contains(cpu) {
			continue
		}
		dir := cpuPath(cpu, "topology")
		threads := t.threads.read(t, dir)
		if threads == nil {
			// UP kernels and containers show no core, but maybe a package.
			threads = new(topology.CPUs(cpu))
		} else {
			t.addCore(cpu, dir, threads, done)
		}
		done = done.Union(*threads)
		if !t.inPkg.Contains(cpu) {
			t.addPackage(dir, *threads)
		}
		if !t.inL3.Contains(cpu) {
			t.addL3(cpu, *threads)
		}
	}
	t.addDies()
}

// id returns the kernel's number, or nil if it is missing or -1. Numbers from firmware may be large.
func (t *cpuTopology) id(p string) *int {
	v := t.r.number(p)
	if v == nil || *v > math.MaxInt32 {
		return nil
	}
	return new(int(*v))
}

// addCore reduces impossible sets of threads to cpu.
func (t *cpuTopology) addCore(cpu int, dir string, threads *topology.CPUSet, done topology.CPUSet) {
	id := t.id(dir + "/core_id")
	if threads.Len() > 1 && t.coresInside(*threads, id) {
		*threads = topology.CPUs(cpu)
	}
	if !threads.Contains(cpu) || threads.Overlaps(done) {
		p := dir + "/" + t.threads.names[t.threads.known]
		t.r.unread(p, "CPUs "+threads.String()+" cannot be the threads of this core")
		*threads = topology.CPUs(cpu)
	}
	c := topology.Core{OSID: id, CPUs: *threads}
	// One driver sets the frequency of all CPUs, so the first core decides.
	if !t.fixedFrequency {
		c.Governor = t.r.word(cpuPath(cpu, "cpufreq/scaling_governor"))
		if khz := t.r.number(cpuPath(cpu, "cpufreq/cpuinfo_max_freq")); khz != nil && *khz > 0 {
			c.MaxKHz = khz
		}
		t.fixedFrequency = c.Governor == "" && c.MaxKHz == nil && len(t.r.h.Cores) == 0
	}
	t.r.h.Cores = append(t.r.h.Cores, c)
}

// coresInside reports whether the kernel's "threads" are separate cores. Older kernels list two integer cores of AMD's
// families 15h and 16h (Bulldozer to Puma) as siblings with different core IDs. The first core with several threads
// decides.
func (t *cpuTopology) coresInside(threads topology.CPUSet, id *int) bool {
	if t.apart == nil {
		t.apart = new(false)
		for other := range threads.All() {
			otherID := t.id(cpuPath(other, "topology/core_id"))
			if id != nil && otherID != nil && *otherID != *id {
				*t.apart = true
			}
		}
	}
	return *t.apart
}

func (t *cpuTopology) addPackage(dir string, threads topology.CPUSet) {
	set := t.siblings.read(t, dir)
	id := t.id(dir + "/physical_package_id")
	if set == nil && id == nil {
		return
	}
	p := topology.Package{ID: topology.NoID, CPUs: threads}
	if id != nil {
		p.ID = *id
	}
	if set != nil {
		p.CPUs = p.CPUs.Union(set.Difference(t.inPkg))
	}
	t.inPkg = t.inPkg.Union(p.CPUs)
	// Sets with the same number are one package if no set was read, and on x86: kernels before 3.18 list only the
	// siblings in the same NUMA node (Cluster-on-Die). Elsewhere the sets are right: old Itaniums have two packages
	// with one number on a bus.
	if i, ok := t.byID[p.ID]; ok && id != nil && (set == nil || t.x86) {
		q := &t.r.h.Packages[i]
		q.CPUs = q.CPUs.Union(p.CPUs)
		return
	}
	t.byID[p.ID] = len(t.r.h.Packages)
	t.r.h.Packages = append(t.r.h.Packages, p)
}

// addDies adds the dies of packages that have several. Architectures without dies list each CPU as one.
func (t *cpuTopology) addDies() {
	for i := range t.r.h.Packages {
		p := &t.r.h.Packages[i]
		var dies []topology.Die
		rest := p.CPUs
		for !rest.IsEmpty() {
			dir := cpuPath(rest.Min(), "topology")
			set := t.dies.read(t, dir)
			if set == nil {
				return
			}
			id := t.id(dir + "/die_id")
			if id == nil || set.Len() < 2 || !set.IsSubsetOf(rest) || set.Equal(p.CPUs) {
				dies = nil
				break
			}
			dies = append(dies, topology.Die{ID: *id, CPUs: *set})
			rest = rest.Difference(*set)
		}
		slices.SortFunc(dies, func(a, b topology.Die) int { return cmp.Compare(a.ID, b.ID) })
		p.Dies = dies
	}
}

// addL3 expects the cache among the last.
func (t *cpuTopology) addL3(cpu int, threads topology.CPUSet) {
	dir := cpuPath(cpu, "cache")
	indexes := t.r.numbered(dir, "index")
	for _, index := range slices.Backward(indexes) {
		cache := dir + "/index" + strconv.Itoa(index)
		level := t.r.number(cache + "/level")
		if level == nil || *level != 3 || t.r.word(cache+"/type") == "Instruction" {
			continue
		}
		set := t.caches.read(t, cache)
		if set == nil {
			continue
		}
		if set.IsEmpty() {
			set = &threads // Itanium kernels leave the mask of a core's own cache empty
		}
		if !set.Contains(cpu) || set.Overlaps(t.inL3) {
			t.r.unread(cache+"/"+t.caches.names[t.caches.known], "CPUs "+set.String()+
				" cannot be those that share this cache")
			continue
		}
		t.inL3 = t.inL3.Union(*set)
		t.r.h.L3 = append(t.r.h.L3, topology.L3{CPUs: *set, SizeBytes: t.r.cacheSize(cache + "/size")})
		return
	}
}

// cacheSize parses "32768K"; 0 means that the firmware does not tell.
func (r *reader) cacheSize(p string) *uint64 {
	return parsed(r, p, func(s string) (uint64, error) {
		kib, err := strconv.ParseUint(strings.TrimSuffix(s, "K"), 10, 54)
		switch {
		case s == "", err == nil && kib == 0:
			return 0, errNotKnown
		case err != nil:
			return 0, notA(s, "a number of KiB")
		}
		return kib << 10, nil
	})
}

// readCoreKinds distinguishes Intel's cores by PMU, ARM's by capacity.
//
// Source: Documentation/admin-guide/perf/, /sys/devices/cpu_core (5.13); Documentation/scheduler/sched-capacity.rst.
func (r *reader) readCoreKinds() {
	performance := r.list("sys/devices/cpu_core/cpus")
	if performance == nil {
		r.readCapacities()
		return
	}
	strong := func(i int) bool { return performance.Contains(r.h.Cores[i].CPUs.Min()) }
	for i := range r.h.Cores {
		if !strong(i) { // its PMU is cpu_atom or cpu_lowpower
			r.setKinds(strong)
			return
		}
	}
	// The efficiency cores are switched off.
}

func (r *reader) setKinds(strong func(i int) bool) {
	for i := range r.h.Cores {
		r.h.Cores[i].Kind = topology.KindEfficiency
		if strong(i) {
			r.h.Cores[i].Kind = topology.KindPerformance
		}
	}
}

// capacityGap is the least ratio between two kinds. Cores of one kind differ by up to a tenth, because each may have
// its own maximum frequency.
const capacityGap = 1.2

// readCapacities reads capacities relative to 1024. The widest gap separates strong cores from weak ones: slightly
// stronger "prime" cores count as strong cores.
func (r *reader) readCapacities() {
	capacity := make([]int64, len(r.h.Cores))
	for i := range r.h.Cores {
		n := r.number(cpuPath(r.h.Cores[i].CPUs.Min(), "cpu_capacity"))
		if n == nil || *n == 0 {
			return
		}
		capacity[i] = *n
	}
	sorted := slices.Sorted(slices.Values(capacity))
	limit, widest := int64(0), capacityGap
	for i := 1; i < len(sorted); i++ {
		if gap := float64(sorted[i]) / float64(sorted[i-1]); gap >= widest {
			limit, widest = sorted[i], gap
		}
	}
	if limit > 0 {
		r.setKinds(func(i int) bool { return capacity[i] >= limit })
	}
}

// coresFromCPUInfo reads /proc/cpuinfo if /sys shows no topology. Only x86, Itanium, LoongArch and MIPS print cores and
// packages.
func (r *reader) coresFromCPUInfo() {
	info := r.readCPUInfo(true)
	if cpus := info.cpus(); !cpus.IsEmpty() && !r.exists(cpuDir+"/online") {
		r.h.CPUs.Online = cpus
	}
	packages, cores, ok := info.topology()
	if !ok {
		r.unread("proc/cpuinfo", "more CPUs than siblings in a package: packages and cores cannot be told apart")
		return
	}
	r.h.Packages, r.h.Cores = packages, cores
}

// cpus returns CPU 0 without a number, as in kernels for one CPU.
func (c cpuinfo) cpus() topology.CPUSet {
	ids := lists.Map(c.processors, func(p processor) int { return p.id })
	if ids == nil && len(c.common) > 0 {
		ids = []int{0}
		// Alpha and SPARC; the CPUs are numbered from 0.
		if n, err := strconv.Atoi(c.get("cpus active", "ncpus active")); err == nil && n > 0 && n <= topology.MaxCPUs {
			return topology.CPURange(0, n-1)
		}
	}
	return topology.CPUs(ids...)
}

// topology groups CPUs by package and core. ok is false if a package has more CPUs than it claims: a cluster that shows
// several machines as one numbers each machine's packages from 0.
func (c cpuinfo) topology() (packages []topology.Package, cores []topology.Core, ok bool) {
	first := func(f map[string]string, keys ...string) (int, bool) {
		for _, k := range keys {
			if v, err := strconv.Atoi(f[k]); err == nil && v >= 0 {
				return v, true
			}
		}
		return 0, false
	}
	byPackage, byCore := map[int][]int{}, map[[2]int][]int{}
	for _, p := range c.processors {
		pkg, okPkg := first(p.fields, "physical id", "package")
		core, okCore := first(p.fields, "core id", "core")
		if !okPkg || !okCore {
			return nil, nil, true
		}
		byPackage[pkg] = append(byPackage[pkg], p.id)
		byCore[[2]int{pkg, core}] = append(byCore[[2]int{pkg, core}], p.id)
		if n, ok := first(p.fields, "siblings"); ok && n > 0 && len(byPackage[pkg]) > n {
			return nil, nil, false
		}
	}
	for id, cpus := range byPackage {
		packages = append(packages, topology.Package{ID: id, CPUs: topology.CPUs(cpus...)})
	}
	for id, cpus := range byCore {
		cores = append(cores, topology.Core{OSID: new(id[1]), Package: new(id[0]), CPUs: topology.CPUs(cpus...)})
	}
	// Tests need a fixed order.
	slices.SortFunc(packages, func(a, b topology.Package) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(cores, func(a, b topology.Core) int { return a.CPUs.Compare(b.CPUs) })
	return packages, cores, true
}
