package tool

import (
	_ "embed"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
)

var hostTools = []bench.Engine{
	sysbenchEngine("sysbench_cpu_single", "prime numbers up to 10000 by one thread: the speed of a CPU", "1"),
	sysbenchEngine("sysbench_cpu", "prime numbers up to 10000 by one thread a CPU", "{{.CPUs}}"),
	{
		Name: "stress_stream", Tool: toolStressNG, Suite: bench.SuiteMemory, Local: true,
		About:   "memory bandwidth of all CPUs together, by the four loops of STREAM",
		Program: "stress-ng", Package: "stress-ng", VersionCommand: []string{"stress-ng", "--version"},
		Measures: []string{bench.MetricMemoryBandwidth},
		Plugin: lineTool{
			tool:    toolStressNG,
			command: "stress-ng --stream {{.CPUs}} --stream-l3-size {{.Size}} -t {{.Seconds}} --metrics",
			stderr:  true, // in some releases
			// "run duration too short to determine memory rate" below 4.5 s; the arrays have to be filled as well
			seconds: 6,
			// Three arrays of four times the configured size of the last cache: near the size of the real cache the
			// figure is not one of memory.
			sizes: &toolSizes{shared: 1, all: []toolSize{{"32M", 384}, {"16M", 192}, {"8M", 96}, {"4M", 48}, {"2M", 24},
				{"1M", 12}}},
			// Releases up to 0.14 print one rate for reads and writes together.
			lines: []func() *regexp.Regexp{lazyregexp.New(`(?m)^stress-ng: info:\s+\[[0-9]+\] stream: memory rate: ` +
				`(?P<memory_bandwidth1>\S+) MB(?: read)?/sec, (?:(?P<memory_bandwidth2>\S+) MB write/sec, )?` +
				`\S+ Mflop/sec(?: \(instance (?P<instance>[0-9]+)\))?[ \t\r]*$`)},
			never: []sign{
				{lazyregexp.New(`(?m)^.*(?:too short to determine memory rate|stress-ng: fail:|unsuccessful)`),
					"stress-ng measured nothing"},
				{lazyregexp.New(`(?m)^.*stream: memory rate: \S+ (?:[^M\n]|M[^B\n])`),
					"unknown form of a memory rate"}},
			must: []sign{{lazyregexp.New(`successful run completed`),
				"the line that says that the run was completed is missing"}},
			// The printed MB is 2^20 bytes: its loops read 48 and write 32 bytes for 4 floating-point operations, and
			// 46.07 and 30.71 MB/s are printed with 4.03 Mflop/s.
			figures: []lineFigure{{metric: bench.MetricMemoryBandwidth, scale: (1 << 20) / 1e9}},
		},
	},
	{
		Name: "lat_mem_rd", Tool: toolLMBench, Suite: bench.SuiteMemory, Local: true,
		About:   "how long a load takes that waits for the one before it, by the size of what is read",
		Program: "lat_mem_rd", Others: lmbenchPlaces,
		Package: "lmbench (of Debian's non-free, Ubuntu's multiverse)", Measures: []string{bench.MetricLoadLatency},
		Plugin: lineTool{
			tool:     toolLMBench,
			programs: "lat_mem_rd " + lmbenchPlaces,
			// On a ring in random order. The stride is two cache lines, because processors prefetch the neighbour of a
			// line.
			command: "{{.Program}} -P 1 -W 1 -N 1 -t {{.Size}} 128",
			stderr:  true,
			// 512 MiB are several times the last cache of a large server, 64 MiB exceed that of most machines, and an
			// emulated CPU reads 16 MiB in a minute.
			sizes: &toolSizes{all: powersOfTwo(16), largest: "512", quick: "64", emulated: "16"},
			lines: []func() *regexp.Regexp{lazyregexp.New(
				`(?m)^(?P<bytes>[0-9]\S*) (?P<load_latency>\S+)[ \t\r]*$`)},
			never: []sign{
				{lazyregexp.New(`(?s)"stride=.*"stride=`), "a second stride"},
				{lazyregexp.New(`(?m)^[0-9]\S*(?:[ \t\r]*$| \S+[ \t]+\S)`), "a row has a size and a time"}},
			must:    []sign{{lazyregexp.New(`(?m)^"stride=`), "the title is missing"}},
			figures: []lineFigure{{metric: bench.MetricLoadLatency}},
			grain:   512,
		},
	},
}

// The programs of lmbench in Debian and Ubuntu are not in PATH.
const lmbenchPlaces = "/usr/lib/lmbench/bin/x86_64-linux-gnu/lat_mem_rd " +
	"/usr/lib/lmbench/bin/aarch64-linux-gnu/lat_mem_rd"

func powersOfTwo(n int) (all []toolSize) {
	for ; n >= 0; n-- {
		all = append(all, toolSize{strconv.Itoa(1 << n), 1 << n})
	}
	return all
}

func sysbenchEngine(name, about, threads string) bench.Engine {
	return bench.Engine{Name: name, Tool: toolSysbench, About: about, Suite: bench.SuiteCPU, Program: "sysbench",
		Package: "sysbench", Local: true, Measures: []string{bench.MetricEventRate},
		VersionCommand: []string{"sysbench", "--version"}, Plugin: lineTool{
			tool:    toolSysbench,
			command: "sysbench cpu --cpu-max-prime=10000 --threads=" + threads + " --time={{.Seconds}} run",
			// For releases 0.4 to 1.1. 1.1 has another title for the time, and prints the rate twice.
			lines: []func() *regexp.Regexp{
				lazyregexp.New(`(?m)^[ \t]*Number of threads: (?P<threads>\S+)`),
				lazyregexp.New(`(?m)^[ \t]*events per second:[ \t]+(?P<events_per_second>\S+)`),
				lazyregexp.New(`(?m)^[ \t]*events/s \(eps\):[ \t]+(?P<again>\S+)`),
				lazyregexp.New(`(?m)^[ \t]*(?:total time|time elapsed):[ \t]+(?P<seconds>\S+?)s?[ \t\r]*$`),
				lazyregexp.New(`(?m)^[ \t]*total number of events:[ \t]+(?P<events>\S+)`),
			},
			must: []sign{{lazyregexp.New(`(?m)^[ \t]*execution time \(avg/stddev\):`),
				"the output is not whole: its end is missing"}},
			// Rate and events are counted separately, and differ by some percent on short runs.
			figures: []lineFigure{{metric: bench.MetricEventRate, count: "events", over: [2]string{"events", "seconds"},
				within: 0.1, unprinted: lazyregexp.New(`(?m)^sysbench 0\.[0-4]\.`)}},
		}}
}

// 7z in p7zip and in later packages, 7zz in 7-Zip itself, and 7zr if it supports only its own format.
const sevenZipOthers = "7zz 7zr"

var applications = []bench.Engine{
	{
		Name: "7zip", Tool: tool7Zip, Suite: bench.SuiteApps, Local: true,
		About:   "compressing and decompressing by one thread a CPU: integers, caches and memory",
		Program: "7z", Others: sevenZipOthers, Package: "7zip or p7zip-full",
		Measures: []string{bench.MetricRating, bench.MetricRatingCompress, bench.MetricRatingDecompress},
		// "7-Zip (z) 26.02 (x64) : Copyright ...", and as a part of p7zip "7-Zip [64] 16.02 : ...".
		Versions: []bench.VersionLine{{Name: "",
			Line: lazyregexp.New(`(?m)^7-Zip (?:[(\[]\S+[)\]] )*([0-9]+\.[0-9]+)\b`)}},
		Plugin: lineTool{
			tool:     tool7Zip,
			programs: "7z " + sevenZipOthers,
			command:  "{{.Program}} b -mmt{{.CPUs}} -md{{.Size}}",
			// Two threads with dictionaries of 2^25 bytes, its own largest, down to 2^22. Each size takes about half a
			// minute on an emulated CPU.
			sizes: &toolSizes{shared: 2, quick: "22", emulated: "22", all: []toolSize{{"25", 458}, {"24", 234},
				{"23", 122}, {"22", 66}}},
			// The averages of 16.02 have no speed. The rating is last: speed (KiB/s), usage (%), rating for one CPU in
			// use, rating (MIPS).
			lines: []func() *regexp.Regexp{
				lazyregexp.New(`(?m)^RAM usage:.*# Benchmark threads:[ \t]+(?P<threads>\S+)[ \t\r]*$`),
				lazyregexp.New(`(?m)^Avr:(?:[ \t]+\S+){2,3}[ \t]+(?P<rating_compress>\S+)[ \t]+\|` +
					`(?:[ \t]+\S+){2,3}[ \t]+(?P<rating_decompress>\S+)[ \t\r]*$`),
				lazyregexp.New(`(?m)^Tot:[ \t]+\S+[ \t]+\S+[ \t]+(?P<rating>\S+)[ \t\r]*\n`),
			},
			never: []sign{{lazyregexp.New(`(?m)^[ \t]*(?:[0-9]+:[ \t]+)?(?:ERROR:|System ERROR|Break signaled)`),
				"7-Zip gave up"}},
			must: []sign{{lazyregexp.New(`(?m)^[ \t]+KiB/s +% +MIPS +MIPS +\| +KiB/s +% +MIPS +MIPS[ \t\r]*$`),
				"unknown layout: other units"}},
			figures: []lineFigure{
				{metric: bench.MetricRating, mean: [2]string{bench.MetricRatingCompress, bench.MetricRatingDecompress}},
				{metric: bench.MetricRatingCompress}, {metric: bench.MetricRatingDecompress}},
		},
	},
	jobEngine("lammps", toolLAMMPS, "lammps", "steps a second of a simulation of copper atoms, over all ranks",
		`(?m)^LAMMPS \(([^)\n]+)\)`, lineTool{
			job: &job{names: "lmp lmp_mpi", args: "-log none", stdin: lammpsInput, fast: work{20, 2000},
				slow: work{10, 100}, cube: 4},
			lines: []func() *regexp.Regexp{
				lazyregexp.New(`(?m)^Loop time of (?P<seconds>\S+) on (?P<ranks>[0-9]+) procs for (?P<steps>[0-9]+) ` +
					`steps with (?P<parts>[0-9]+) atoms[ \t\r]*$`),
				lazyregexp.New(
					`(?m)^Performance: (?P<simulated>\S+) ns/day, \S+ hours/ns, (?P<step_rate>\S+) timesteps/s`),
			},
			figures: []lineFigure{
				{metric: bench.MetricStepRate, count: "steps", over: [2]string{"steps", "seconds"}, within: 0.001},
				{metric: bench.MetricSimulated, count: "steps"}},
		}),
	jobEngine("gromacs", toolGROMACS, "gromacs", "steps a second of a simulation of water, over all ranks",
		`(?m)^GROMACS version: +([0-9.]+)`, lineTool{
			job: &job{names: "gmx_mpi",
				args: "mdrun -s water.tpr -g md.log -ntomp 1 -pin off -notunepme -dlb no -noconfout",
				env:  []string{"GMX_MAXBACKUP=-1"}, input: gromacsInput, results: "md.log", fast: work{2, 2000},
				slow: work{2, 40}, cube: 648},
			lines: []func() *regexp.Regexp{
				lazyregexp.New(`(?m)^Using (?P<ranks>[0-9]+) MPI process`),
				lazyregexp.New(`(?m)^ +nsteps += (?P<steps>[0-9]+)[ \t\r]*$`),
				lazyregexp.New(`(?m)^There are: (?P<parts>[0-9]+) Atoms`),
				lazyregexp.New(`(?m)^ +Time: +\S+ +(?P<seconds>\S+) +\S+[ \t\r]*$`),
				lazyregexp.New(`(?m)^Performance: +(?P<simulated>\S+) +\S`),
			},
			figures: []lineFigure{
				// A step of the input is 2e-6 ns.
				{metric: bench.MetricStepRate, of: bench.MetricSimulated, scale: 1 / 2e-6 / 86400, count: "steps",
					extra: 1, over: [2]string{"steps", "seconds"}, within: 0.001},
				{metric: bench.MetricSimulated, count: "steps"}},
		}),
	jobEngine("openfoam", toolOpenFOAM, "openfoam", "steps a second of a flow in a box, over all ranks",
		`(?m)^Build +: OPENFOAM=(\S+)`, lineTool{
			job: &job{names: "icoFoam", args: "{{if gt .Ranks 1}}-parallel{{end}}", input: openFOAMInput,
				env:     []string{"WM_PROJECT_DIR=/usr/share/openfoam"},
				results: "{{if gt .Ranks 1}}processor0/{{end}}{{.Steps}}/uniform/profiling",
				fast:    work{40, 200}, slow: work{20, 40}},
			// Its printed times are CPU times or whole seconds, so the profile of the loop over the steps is used.
			lines: []func() *regexp.Regexp{
				lazyregexp.New(`(?m)^nProcs : (?P<ranks>[0-9]+)[ \t\r]*$`),
				lazyregexp.New(`(?m)^[ \t]+description +"time\.run\(\) .*;\s+calls +(?P<steps>\S+);\s+` +
					`totalTime +(?P<seconds>\S+);`),
			},
			figures: []lineFigure{{metric: bench.MetricStepRate, count: "steps", over: [2]string{"steps", "seconds"},
				quotient: true}},
		}),
	jobEngine("hpcc", toolHPCC, "hpcc", "the HPC Challenge over all ranks: Linpack, and messages around a ring",
		`HPC Challenge Benchmark version ([0-9][\w.]*)`, lineTool{
			job: &job{names: "hpcc", input: hpccInput, results: "hpccoutf.txt", fast: work{4000, 0},
				slow: work{400, 0}},
			lines: []func() *regexp.Regexp{
				lazyregexp.New(`(?m)^CommWorldProcs=(?P<ranks>\S+)`),
				lazyregexp.New(`(?m)^HPL_N=(?P<side>\S+)`),
				lazyregexp.New(`(?m)^HPL_Tflops=(?P<flop_rate>\S+)`),
				lazyregexp.New(`(?m)^RandomlyOrderedRingLatency_usec=(?P<latency_average>\S+)`),
				lazyregexp.New(`(?m)^RandomlyOrderedRingBandwidth_GBytes=(?P<bw_average>\S+)`),
			},
			never: []sign{{lazyregexp.New(`(?m)^Success=[^1]`), "a test of it found wrong results"}},
			must:  []sign{{lazyregexp.New(`(?m)^End of Summary section\.`), "there is no line of its performance"}},
			// One rank has no ring.
			figures: []lineFigure{{metric: bench.MetricFlopRate, scale: 1000},
				{metric: bench.MetricLatencyAverage, ranks: 2}, {metric: bench.MetricBWAverage, scale: 8, ranks: 2}},
		}),
}

// Inputs of the jobs: "loop geom" gives atoms the same velocities on any number of ranks; the lid of the flow moves two
// fifths of a cell in each step of 1 s; hpcc reads numbers at the beginnings of lines, by position.
var (
	//go:embed programs/lammps.in
	lammpsInput string
	//go:embed programs/gromacs.in
	gromacsInput string
	//go:embed programs/openfoam.in
	openFOAMInput string
	//go:embed programs/hpcc.in
	hpccInput string
)

func jobEngine(name, tool, packages, about, version string, t lineTool) bench.Engine {
	t.tool = tool
	program, _, _ := strings.Cut(t.job.names, " ")
	e := bench.Engine{Name: name, Tool: tool, Suite: bench.SuiteApps, Local: true, Together: &bench.Group{},
		Program: program, Launches: true, About: about, Package: packages + " (image: debian-12+apps in the lab file)",
		Versions: slices.Concat([]bench.VersionLine{{Name: "", Line: lazyregexp.New(version)}}, osuVersions[1:]),
		Plugin:   t}
	for _, f := range t.figures {
		e.Measures = append(e.Measures, f.metric)
	}
	return e
}
