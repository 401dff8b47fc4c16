package deps

// A rule says what one package may import outside its tests.
// Names of packages of this module are relative to it: "vm/qemu". "driver/..." stands for driver and all below it.
type rule struct {
	// may lists the packages of this module that may be imported; any lifts the limit.
	may []string
	any bool
	// why is the reason for the limit, printed when it is broken.
	why string
	// never maps imports that are wrong here, of any kind, to the reason. A package of this module
	// is wrong by whatever way it is reached, one of the standard library or of another module only
	// where it is imported directly.
	never map[string]string
}

// Reasons that several rules share.
const (
	whyPure = "pure packages do no I/O and read no clock, so that the same input gives the same bytes: " +
		"take the value as an argument, or as an io.Reader, from the caller"
	whyPlan   = "a plan follows from a lab and a host alone"
	whyApart  = "search and checker share no code, so that a mistake of one does not hide in the other"
	whyImport = "an importer makes a Host of one tool's output, from bytes: opening files is inspect's business"
	whyBench  = "bench needs only something that runs a command on a node (bench.Runner); it must not know how nodes " +
		"come to be"
	whyFabric = "the switch moves frames between ports; whose ports they are is the business of rack"
	whyHost   = "what is done to a host follows from a plan; who starts machines on it, and measures them, is not " +
		"its business"
	whyRack = "one driver of labs knows nothing of another, and package rack knows none of them"
	whyCmd  = "a command is wired up from packages, and never imported: move what is shared into the package whose " +
		"business it is"
)

// pure is what a pure package never imports.
func pure() map[string]string {
	return map[string]string{
		"crypto/rand": whyPure, "math/rand": whyPure, "math/rand/v2": whyPure,
		"log": whyPure, "log/slog": whyPure,
		"net": whyPure + " (net/netip is fine)", "net/http": whyPure,
		"os": whyPure, "os/exec": whyPure, "os/signal": whyPure, "os/user": whyPure,
		"golang.org/x/sys/unix": whyPure, "syscall": whyPure,
		"time": whyPure,
	}
}

// with adds an import that is wrong, and the reason, to m.
func with(m map[string]string, path, why string) map[string]string {
	m[path] = why
	return m
}

// seeded is pure for packages that draw random numbers: from a generator that starts at a seed of
// the caller's. What the linters cannot see, their tests do: the same seed, the same result.
func seeded() map[string]string {
	m := pure()
	delete(m, "math/rand/v2")
	return m
}

// timed is seeded for packages that handle times which others have read from a clock.
func timed() map[string]string {
	m := seeded()
	delete(m, "time")
	return m
}

// rules knows every package of the module, those to come as well. The order is that of the data's way through them.
var rules = map[string]rule{
	"machine/topology": {why: "the model of a machine is read by everybody and knows nobody", never: pure()},
	"machine/topology/compare": {may: []string{"machine/topology"},
		why:   "accounts are held against each other as values, whoever read them",
		never: pure()},
	"machine/inspect": {
		may: []string{
			"machine/facts", "machine/dump/esxi", "machine/dump/hwlocxml", "machine/dump/lspci", "machine/dump/nccl", "machine/inspect/pci",
			"machine/dump/where", "machine/dump/smi", "machine/dump/texts", "machine/inspect/tree", "machine/dump/xmltree", "machine/cmdline",
			"internal/lazyregexp", "machine/dump/paste", "internal/trace", "internal/userfile",
			"machine/topology", "machine/topology/compare",
		},
		why: "reading a machine is for whoever plans, checks or draws it; it knows none of them",
	},
	"machine/inspect/tree": {may: []string{"internal/trace"},
		why: "a file system in a directory or an archive; what is in it is its reader's business"},
	"machine/dump/xmltree": {may: []string{"machine/dump/where"},
		why: "XML as elements with their lines; what they mean is the " +
			"business of importers"},
	"machine/dump/esxi":     {may: []string{"machine/dump/where", "internal/lazyregexp", "machine/topology"}, why: whyImport},
	"machine/dump/hwlocxml": {may: []string{"machine/dump/where", "machine/dump/xmltree", "machine/topology"}, why: whyImport},
	"machine/inspect/pci": {may: []string{"machine/pciids", "machine/topology"},
		why: "registers and addresses, wherever they were read"},
	"machine/dump/lspci": {may: []string{"machine/inspect/pci", "machine/dump/where", "internal/lazyregexp", "machine/pciids",
		"machine/topology"},
		why: whyImport},
	"machine/dump/nccl": {may: []string{"machine/dump/where", "machine/dump/xmltree", "internal/lazyregexp", "machine/topology"},
		why: whyImport},
	"machine/dump/where": {may: []string{"machine/topology"}, why: "where something is wrong, in one form: a text and a number"},
	"machine/dump/smi": {may: []string{"machine/dump/where", "internal/lazyregexp", "machine/dump/paste", "machine/topology"},
		why: whyImport},
	"machine/dump/texts": {may: []string{"machine/dump/where", "machine/dump/xmltree", "internal/lazyregexp", "machine/pciids",
		"machine/topology"},
		why: whyImport},
	"machine/finding": {may: []string{"internal/lazyregexp"},
		why: "a finding has one form and one explanation, whoever makes it", never: pure()},
	"machine/diagnose": {may: []string{"machine/finding", "machine/cmdline", "machine/topology"},
		why:   "a finding follows from the facts alone, so that it can be had from a snapshot a year later",
		never: pure()},
	"machine/gpudirect": {may: []string{"machine/diagnose", "machine/finding", "machine/topology"},
		why:   "what hinders GPUDirect follows from the facts alone, as findings do",
		never: pure()},

	"lab": {may: []string{"internal/strictyaml"}, why: "the lab file is read by everybody and knows nobody",
		never: pure()},
	"plan": {may: []string{"lab", "machine/topology"}, why: whyPlan, never: pure()},
	"plan/build": {
		may: []string{"internal/strictyaml", "lab", "plan", "machine/topology"},
		why: whyPlan, never: pure()},
	"plan/verify": {may: []string{"lab", "plan", "machine/topology"},
		why: "the checker shares no code with what it judges", never: with(pure(), "plan/search", whyApart)},
	"plan/search": {may: []string{"lab", "plan", "machine/topology"}, why: "the search sees the problem and nothing else",
		never: with(pure(), "plan/verify", whyApart)},
	"plan/conflict": {may: []string{"lab", "plan", "machine/topology"},
		why: "the reason for a conflict follows from a solver's answers, whichever solver it is", never: pure()},
	"plan/rivals": {may: []string{"lab", "plan", "machine/topology"},
		why: "others' habits are given the same problem, and must not know our answer", never: pure()},
	"plan/advise": {may: []string{"lab", "plan", "plan/build", "plan/search", "machine/topology"},
		why:   whyPlan,
		never: pure()},
	"plan/variant": {may: []string{"lab", "plan", "machine/topology"}, why: whyPlan, never: pure()},
	"plan/render": {
		may: []string{"machine/cmdline", "internal/strictyaml", "lab", "plan", "machine/topology"},
		why: "artefacts follow from a plan alone, and nothing here runs them", never: pure(),
	},
	"plan/render/slurm": {may: []string{"plan/render", "machine/topology"},
		why: "files for Slurm follow from what a cluster is, whether a lab or real machines", never: pure()},
	"plan/render/openmpi": {may: []string{"plan"}, why: "where ranks run follows from a plan alone", never: pure()},
	"plan/render/export": {may: []string{"lab", "plan", "plan/render", "plan/render/openmpi", "plan/render/slurm", "machine/topology"},
		why: "files for other systems follow from a plan alone, and nothing here runs them", never: pure()},
	"plan/render/directory": {may: []string{"internal/atomicfile", "internal/userfile", "plan", "plan/render"},
		why: "it writes what was rendered: what that is, and for whom, is its callers' business"},

	"rack/mend": {
		may: []string{"machine/diagnose", "machine/finding", "machine/inspect", "internal/lazyregexp", "lab", "plan/planner", "plan/render",
			"plan/render/export", "report/hostview", "report/show", "machine/topology"},
		why: "a machine that exists is judged and described anew; who applies that is its callers' business"},
	"rack/mend/adopt": {may: []string{"host/change", "machine/inspect", "vm/libvirt", "rack/mend"},
		why: "a description is applied and taken back as it was made; nothing is judged here"},
	"host/change": {may: []string{"internal/atomicfile", "internal/trace", "machine/topology"},
		why: "how a change is made and taken back; what is changed is the business of the ops"},
	"host": {any: true, never: map[string]string{"driver/...": whyHost, "vm/libvirt": whyHost, "vm/guest": whyHost,
		"rack":  whyHost,
		"bench": whyHost, "vm/emulate": whyHost, "vm": whyHost}},
	"host/boot":   {may: []string{"host/change", "machine/cmdline", "internal/lazyregexp", "machine/topology"}, why: whyHost},
	"host/device": {may: []string{"host/change", "machine/inspect", "lab", "plan", "plan/render", "machine/topology"}, why: whyHost},
	"host/tune": {may: []string{"host/change", "machine/inspect", "machine/cmdline",
		"internal/lazyregexp", "lab",
		"plan", "plan/render", "machine/topology"},
		why: whyHost},

	"rdma/vfiouser": {why: "a protocol: what device it carries is its caller's business"},
	"rdma/connectx": {may: []string{"internal/atomicfile", "rdma/roce", "rdma/vfiouser"},
		why: "an adapter moves frames and messages; whose ports they are is the business of rack"},
	"vm/qapi": {why: "a protocol client: what it is used for is its caller's business"},
	"vm": {may: []string{"vm/guest", "internal/atomicfile", "internal/trace", "vm/qapi"},
		why: "one QEMU process: what machine it makes, and what for, is its callers' business"},
	"vm/qemu": {
		may: []string{"rdma/connectx", "vm/guest", "vm/image", "internal/atomicfile", "lab", "vm/qapi", "vm"},
		why: "a driver makes nodes, and the adapters of a template; rack joins them to the fabric and measures them",
	},
	"vm/libvirt": {
		may: []string{"vm/guest", "vm/image", "internal/trace", "vm/qapi", "plan/render"},
		why: "a driver makes nodes of domains that were rendered; where they go is the business of plan",
	},
	"vm/vsphere": {
		may: []string{"vm/guest", "host/change", "machine/dump/esxi", "internal/lists", "internal/trace", "internal/userfile",
			"internal/words", "lab", "plan", "vm/qapi", "machine/topology"},
		why: "hosts are read and changed through a vCenter; when, and for whom, is its callers' business",
	},
	"vm/guest": {may: []string{"machine/facts", "internal/trace", "vm/qapi"},
		why: "what is inside a machine does not depend on what starts it, or where"},
	"rdma/fabric": {any: true, never: map[string]string{
		"bench": whyFabric, "driver/...": whyFabric, "vm/libvirt": whyFabric, "vm/guest": whyFabric, "lab": whyFabric,
		"rack": whyFabric,
	}},

	"rdma/roce": {why: "the transport of an emulated NIC knows neither the device nor the network around it",
		never: timed()},

	"bench": {any: true, never: map[string]string{
		"driver/...": whyBench, "vm/libvirt": whyBench, "rdma/fabric": whyBench, "vm/guest": whyBench, "rack": whyBench,
		"report": "figures are measured first and shown later: report reads bench's samples",
	}},
	"machine/facts": {may: []string{"machine/cmdline", "machine/topology"},
		why: "what a kernel says of itself is read by everybody and knows nobody"},
	"rack/check": {may: []string{"bench", "machine/diagnose", "machine/facts", "machine/finding", "machine/cmdline", "lab",
		"plan", "machine/topology"},
		why: "a check compares values; how they got so is not its business"},
	"study/stats": {why: "statistics are made of numbers: what was measured, and how, is not their business",
		never: seeded()},
	"study": {may: []string{"bench", "internal/lazyregexp", "internal/strictyaml", "study/stats"},
		why:   "what a study shows follows from its runs and a seed; how they were made is not its business",
		never: timed()},
	"study/document": {may: []string{"machine/inspect", "internal/steps", "internal/userfile", "lab", "report", "report/show",
		"report/studyview", "study", "study/conduct", "study/recommend", "study/store"},
		why: "it reads and analyses studies; how they look is the business of studyview"},
	"study/lock": {may: []string{"internal/lazyregexp"},
		why: "one study at a time on a machine; what it measures is not the lock's business"},
	"study/store": {may: []string{"bench", "internal/trace", "study"},
		why: "what was measured, on disk; what it means is its readers' business"},
	"study/importer": {may: []string{"bench", "internal/lazyregexp", "machine/dump/paste", "study"},
		why: "results of others, from bytes: opening files is its caller's business, keeping them that of " +
			"study/conduct", never: timed()},
	"study/appraise": {may: []string{"bench", "machine/facts", "machine/finding", "internal/lazyregexp", "study/importer",
		"machine/topology"},
		why: "figures, a host and what is wrong with it are given; where they come from, and how the answer is " +
			"shown is its caller's business", never: pure()},
	"study/conduct": {
		may: []string{"bench", "study", "study/importer", "study/stats", "study/store"},
		why: "it makes runs in order and writes them down; what they are made on is behind an interface",
	},
	"study/recommend": {
		may: []string{"internal/strictyaml", "lab", "plan", "plan/build", "study", "study/stats", "machine/topology"},
		why: "a recommendation follows from a host, a lab and what was measured; reading studies and planning are " +
			"its callers' business", never: pure(),
	},
	"study/rig": {any: true, never: map[string]string{"cmd/...": whyCmd, "report": "what is measured is shown later",
		"study/store": "a rig measures; who writes it down is not its business"}},
	"report": {
		may: []string{"study/appraise", "bench", "rack/check", "machine/finding", "lab",
			"report/chart", "report/show", "study/stats"},
		why: "a report is made from results alone, so that one can be made on another machine a year later",
	},
	"machine/inspect/remote": {may: []string{"machine/inspect", "internal/atomicfile", "internal/lazyregexp", "internal/trace",
		"internal/userfile",
		"machine/topology"},
		why: "the way to a machine by ssh: what is read there is the business of inspect"},
	"report/hostview": {may: []string{"machine/finding", "machine/gpudirect", "report/show", "machine/topology", "machine/topology/compare"},
		why: "a host is drawn from the model alone, whatever it was read from"},

	"report/changeview": {may: []string{"host/change", "internal/steps"},
		why: "steps are shown as they were made; to make them is host's business"},
	"report/chart": {may: []string{"report/show", "study/stats"},
		why: "how charts look; what is in them is their writers' business"},
	"report/show": {why: "how pages and charts look; what is in them is their writers' business"},
	"report/listview": {may: []string{"vm/emulate", "vm/images", "rack", "report/show"},
		why: "what there is, as its packages list it"},
	"report/fabricview": {may: []string{"rack/check", "rdma/fabric", "report/show"},
		why: "counters and adapters are shown as switch and daemon gave them"},
	"report/recommendview": {may: []string{"report/show", "study/recommend"},
		why: "a recommendation is shown as it was made; nothing is decided here"},
	"report/studyview": {
		may: []string{"report", "report/chart", "report/show", "study",
			"study/recommend", "study/stats", "machine/topology"},
		why: "a study is shown as it was analysed; nothing is decided here"},
	"report/live": {
		may: []string{"rack/check", "rdma/fabric", "machine/finding", "report", "report/chart", "report/hostview",
			"report/show", "report/studyview"},
		why: "pages show what a source says; where it has it from is not their business",
	},
	"report/planview": {may: []string{"machine/finding", "lab", "plan", "plan/advise", "plan/rivals",
		"report/hostview", "report/show", "machine/topology"},
		why: "a plan is printed as it was made; nothing is decided here"},

	"vm/emulate": {any: true, never: map[string]string{"cmd/...": whyCmd,
		"host": "an emulated host is a machine like others; what is done in it is not its business"}},
	"vm/image": {may: []string{"vm/guest", "internal/atomicfile", "vm/distro", "internal/lazyregexp", "internal/trace",
		"internal/userfile",
		"vm/qapi", "vm"},
		why: "an image is built from packages, and does not depend on what boots it, or where"},
	"rack": {
		may: []string{"bench", "rack/check", "rdma/fabric", "machine/facts", "vm/guest", "host/change", "internal/atomicfile",
			"internal/steps", "internal/trace", "internal/userdirs", "lab", "plan", "rack/slurm", "machine/topology", "vm"},
		why: "what makes the nodes of a lab is behind rack.Runtime, so that another hypervisor is a package " +
			"of its own",
		never: map[string]string{"vm/libvirt": whyRack, "vm/qemu": whyRack, "cmd/...": whyCmd},
	},
	"rack/emulated": {any: true, never: map[string]string{"cmd/...": whyCmd, "vm/libvirt": whyRack,
		"rack/placed": whyRack}},
	"rack/ssh": {may: []string{"vm/qemu", "vm/guest", "internal/atomicfile", "internal/trace", "lab", "rack"},
		why: "the way to a node by ssh: what is done there is its callers' business"},
	"rack/mpi": {may: []string{"bench", "vm/guest", "vm/image", "lab", "plan", "rack", "plan/render/openmpi"},
		why: "a run of a program on nodes, which whoever has nodes can ask for"},
	"rack/slurm": {may: []string{"machine/facts", "vm/guest", "vm/image", "internal/atomicfile", "lab", "plan/render", "plan/render/slurm"},
		why: "it runs Slurm on nodes, whoever makes these"},
	"rack/placed": {any: true, never: map[string]string{"cmd/...": whyCmd, "rack/emulated": whyRack}},
	"rack/vcenter": {any: true, never: map[string]string{"cmd/...": whyCmd, "rack/emulated": whyRack,
		"rack/placed": whyRack}},
	"rack/verify": {any: true, never: map[string]string{"cmd/...": whyCmd,
		"report/...": "what was found is shown later: report reads findings"}},
	"vm/images": {may: []string{"vm/image", "internal/atomicfile", "internal/userfile", "rack", "vm"},
		why: "it lists, carries and removes what others have made"},
	"report/ui": {any: true, never: map[string]string{"cmd/...": whyCmd, "host": "the pages show, and change nothing"}},
	"rack/course": {may: []string{"rack/check", "rdma/fabric", "machine/finding", "vm/guest", "internal/atomicfile", "internal/strictyaml",
		"rack", "rack/verify"},
		why: "it does to a lab what users can do to it by other commands"},
	"plan/planner": {any: true, never: map[string]string{"cmd/...": whyCmd,
		"rack": "a plan follows from a host and a lab: " +
			"what runs is not asked", "plan/render": "a plan is made first and written later"}},
	"study/measure": {any: true, never: map[string]string{"cmd/...": whyCmd,
		"study/rig": "a study measures by its own design: this measures a lab once"}},
	"study/results": {may: []string{"bench", "internal/atomicfile", "internal/userfile", "report"},
		why: "results on disk; how they were measured, and where users keep them, is their callers' business"},
	"rack/doctor": {any: true, never: map[string]string{"cmd/...": whyCmd,
		"report/...": "what is missing is found first and shown later"}},
	"cmd/rackless":   {any: true},
	"docs":           {why: "documents as files, embedded: who prints them knows what they are"},
	"examples/hosts": {why: "profiles as files, embedded: what they mean is the business of emulate"},
	"internal/atomicfile": {may: []string{"internal/trace"},
		why: "files that are there whole or not at all: what is in them is their writer's business"},
	"internal/browsertest": {why: "a browser for tests of whoever makes pages"},
	"machine/cmdline": {may: []string{"machine/topology"},
		why: "kernel arguments as text: where they are written is their writers' business", never: pure()},
	"internal/cgroup": {why: "what control groups allow this process, as numbers: what follows is its callers' " +
		"business"},
	"vm/distro":         {why: "what distributions are called and what they call things: who asks is their business"},
	"internal/parallel": {why: "jobs on all cores; what they do is their callers' business"},
	"internal/steps":    {why: "steps as events: what is done in them is their callers' business"},
	"internal/userdirs": {why: "where a user's things are: what they are is the business of who keeps them"},
	"internal/terminal": {may: []string{"internal/atomicfile", "internal/steps", "internal/userfile"},
		why: "how things are shown on a terminal; what they are is their callers' business"},
	"internal/lists": {why: "what package slices lacks, for everybody who has lists"},
	"internal/group": {why: "values by key in the order of the keys, for everybody who groups"},
	"internal/cli": {may: []string{"internal/atomicfile", "internal/strictyaml"},
		why: "the habits of a command line, whatever its verbs do"},
	"internal/wait":  {why: "waiting, for everybody who has to"},
	"internal/words": {why: "numbers as words, for everybody who prints"},
	"vm/daemon": {may: []string{"vm/guest", "internal/trace", "vm/qapi", "vm"},
		why: "how a daemon is started and serves; what it serves is its caller's business"},
	"internal/deps": {why: "it judges the others"},
	"machine/machinetest": {may: []string{"machine/inspect/tree", "machine/topology"},
		why: "it writes files for tests as a kernel would; what they come to is their readers' business"},
	"vm/kerneltest": {may: []string{"vm/image", "rack", "vm"},
		why: "a machine for tests of whoever needs a real kernel; what is tested in it is their business"},
	"internal/lazyregexp": {why: "regular expressions, later"},
	"machine/dump/paste": {may: []string{"internal/lazyregexp"},
		why: "text in, text out; what it says is its reader's business", never: pure()},
	"plan/planbench": {any: true, never: map[string]string{"cmd/...": whyCmd}},
	"plan/plantest": {may: []string{"lab", "plan", "machine/topology"},
		why: "it makes problems for tests and benchmarks; who solves them is not its business"},
	"machine/synthetic": {may: []string{"machine/topology"},
		why: "a machine of one line of text; what it is tested with is its readers' business", never: pure()},
	"vm/libvirttest":      {why: "a libvirt for tests of whoever needs one"},
	"vm/vspheretest":      {why: "a vCenter for tests of whoever talks to one"},
	"internal/sshtest":    {why: "a server of ssh for tests of whoever has a client"},
	"internal/tally":      {why: "what tests count, where make prints it"},
	"internal/strictyaml": {why: "YAML as people write it, for whoever reads it", never: timed()},
	"internal/trace": {why: "what a command reads, runs and changes, as lines: why it does so is its callers' business",
		never: pure()},
	"internal/userfile": {may: []string{"internal/trace"},
		why: "bounded reads: what is in a file is its reader's business"},
	"machine/pciids": {why: "names by number: a table and its search"},
	"rack/labbench":  {any: true, never: map[string]string{"cmd/...": whyCmd}},
}

// testOnly are imports for tests; in a program they would be dead weight or worse (testing registers flags).
var testOnly = map[string]string{
	"testing/...":                                    "the testing package is for tests",
	"github.com/google/go-cmp/...":                   "it panics on what it does not know: it is for tests",
	"github.com/rogpeppe/go-internal/testscript/...": "it is for tests",
	"pgregory.net/rapid/...":                         "its licence, MPL-2.0, is accepted for tests only",
	"github.com/santhosh-tekuri/jsonschema/v6/...": "lab checks its input itself, with lines and columns; this one " +
		"judges the schema in tests",
	"github.com/invopop/jsonschema/...": "the schemas are files: it makes them in tests",
}

// forAll are packages that all others may import, as they may import the standard library. They import none of this
// module.
var forAll = []string{"internal/group", "internal/lists", "internal/parallel", "internal/wait", "internal/words"}

// noName are package names that say nothing about what is inside, so that everything ends up inside.
var noName = []string{"base", "common", "helper", "helpers", "lib", "misc", "shared", "types", "util", "utils"}
